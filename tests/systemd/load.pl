#!/usr/bin/perl
# Creates, renames, reads and removes files in a directory, and fails at the first wrong result. Beside that it keeps a file open
# that has no name any more, and a lock. SIGUSR1 prints the longest round since the last one, in milliseconds; SIGTERM ends it.
#   load.pl DIRECTORY
use strict;
use warnings;
use Fcntl qw(:flock SEEK_SET);
use Time::HiRes qw(time);

my $directory = shift or die "usage: load.pl DIRECTORY\n";
my ($longest, $print, $stop, $rounds) = (0, 0, 0, 0);
$SIG{USR1} = sub { $print = 1 };
$SIG{TERM} = sub { $stop = 1 };
$| = 1;

sub fail { die "load: round $rounds: $_[0]: $!\n" }

open(my $nameless, '+>', "$directory/nameless") or fail("create nameless");
unlink("$directory/nameless") or fail("unlink nameless");
open(my $locked, '+>', "$directory/locked") or fail("create locked");
flock($locked, LOCK_EX | LOCK_NB) or fail("lock");

until ($stop) {
    my $begin = time;
    my ($from, $to) = ("$directory/from.$rounds", "$directory/to.$rounds");
    open(my $file, '>', $from) or fail("create $from");
    syswrite($file, "round $rounds\n") or fail("write $from");
    close($file) or fail("close $from");
    rename($from, $to) or fail("rename $from");
    open($file, '<', $to) or fail("open $to");
    my $line = <$file>;
    defined $line && $line eq "round $rounds\n" or fail("read $to");
    close($file);
    -e $from and fail("$from is still there");
    unlink($to) or fail("unlink $to");

    sysseek($nameless, 0, SEEK_SET) or fail("seek nameless");
    syswrite($nameless, pack('N', $rounds)) or fail("write nameless");
    sysseek($nameless, 0, SEEK_SET) or fail("seek nameless");
    sysread($nameless, my $number, 4) or fail("read nameless");
    unpack('N', $number) == $rounds or fail("nameless has other content");
    if ($rounds % 1024 == 0) {
        opendir(my $listing, $directory) or fail("open the directory");
        my @left = grep { /^(from|to)\./ } readdir($listing);
        @left and fail("left behind: @left");
        mkdir("$directory/dir.$rounds") or fail("mkdir");
        rmdir("$directory/dir.$rounds") or fail("rmdir");
    }

    my $took = time - $begin;
    $longest = $took if $took > $longest;
    $rounds++;
    if ($print) {
        printf("%.1f\n", $longest * 1000);
        ($longest, $print) = (0, 0);
    }
}
print "rounds $rounds\n";
