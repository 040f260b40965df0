#!/usr/bin/perl -w
# In the guest: creates, links, renames, appends to, reads and unlinks files in a directory whose server is killed meanwhile, and
# compares each result with what it must be. Ends when the file "stop" appears next to the directory. Arguments: the directory, and a
# name for its files.
# The guest has no modules of Perl, not even "strict".
my ($dir, $name) = @ARGV;
my ($calls, $slowest, $last) = (0, 0, 0);
sub uptime { open(my $f, '<', '/proc/uptime') or die; my ($s) = split ' ', <$f>; return $s }
sub fail { print "failed: virtiofs: takeover: $name: @_: $!\n"; exit 1 }
# Counts a call, which must have succeeded, and the time since the one before.
sub ok {
    my ($what, $result) = @_;
    fail($what) unless $result;
    my $now = uptime();
    $slowest = $now - $last if $now - $last > $slowest;
    ($last, $calls) = ($now, $calls + 1);
}
sub content { my ($path) = @_; open(my $f, '<', $path) or return undef; local $/; my $text = <$f>; return $text // '' }
$last = uptime();
for (my $round = 0; !-e "$dir/stop"; $round++) {
    my $path = "$dir/$name.$round";
    sysopen(my $file, $path, 0x2 | 0x40 | 0x80) or fail("create $path");    # O_RDWR, O_CREAT, O_EXCL
    ok('write', syswrite($file, "first $round\n"));
    ok('link', link($path, "$path.link"));
    ok('rename', rename($path, "$path.moved"));
    for my $line (1 .. 3) {
        open(my $log, '>>', "$path.link") or fail('open to append');
        ok('append', syswrite($log, "line $line\n"));
        close($log) or fail('close');
    }
    my $expected = "first $round\nline 1\nline 2\nline 3\n";
    my $found = content("$path.moved");
    $found eq $expected or fail("content of $path.moved is '$found'");
    ok('mkdir', mkdir("$path.dir"));
    ok('rename into', rename("$path.moved", "$path.dir/inside"));
    ok('unlink', unlink("$path.link"));
    (stat("$path.dir/inside"))[3] == 1 or fail('wrong number of links');
    ok('unlink, open', unlink("$path.dir/inside"));
    ok('rmdir', rmdir("$path.dir"));
    # Open, without a name.
    ok('seek', sysseek($file, 0, 0));
    my $length = sysread($file, my $text, 4096);
    defined $length or fail('read of an unlinked file');
    $text eq $expected or fail("an unlinked file has '$text'");
    -e $path and fail("$path is there again");
    close($file) or fail('close of an unlinked file');
}
printf "takeover: %s: %d calls, the slowest %.2f s\n", $name, $calls, $slowest;
