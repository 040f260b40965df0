# The programs that tests call, taken from the host. A program that is missing there is missing in the
# guest, and is reported by the test that needs it.
# shellcheck shell=bash disable=SC2154 # shares its variables with lab/suite

readonly TOOLS=(
    # shells and common tools: tests check the behaviour of the real ones, not of busybox
    bash basename cat chgrp chmod chown cmp comm cp cut date dd df diff dirname du env expr false find flock
    getent grep head id install join kill link ln ls md5sum mkdir mkfifo mknod mktemp mount mountpoint mv
    nproc nsenter od pgrep printf prlimit ps readlink realpath rm rmdir runuser sed seq setpriv sh sha256sum
    sleep sort split stat stdbuf su sync tac tail tar tee test timeout touch tr true truncate umount uname
    uniq unlink unshare wc which xargs xz gzip losetup fallocate script sqlite3
    # file system tools
    fusermount3 mount.fuse3 mkfs.ext4 mke2fs e2fsck debugfs chattr lsattr mkfs.xfs mkfs.btrfs
    git rsync fio strace setfacl getfacl setfattr getfattr setcap getcap capsh quota setquota
)

# Programs installed by tests/setup; in the guest they are in the PATH.
TEST_TOOLS=$("$REPO/tests/setup" --where)/bin
readonly TEST_TOOLS

# Appends the tools to the arguments of lab/run.
add_tools() {
    local tool package path
    for tool in "${TOOLS[@]}"; do
        # Not -v, which prints shell builtins such as "test".
        ! type -P "$tool" >/dev/null || arguments+=(--bin "$tool")
    done
    for path in /usr/lib/git-core /usr/share/git-core; do
        [ ! -d "$path" ] || arguments+=(--file "$path:$path")
    done
    for path in pjdfstest fsx; do
        [ ! -x "$TEST_TOOLS/$path" ] || arguments+=(--bin "$TEST_TOOLS/$path")
    done
    # The installed path of the command, and the path in the build tree that some tests use.
    arguments+=(--file "$SHUNT:/usr/bin/shunt" --file "$SHUNT:$SHUNT")
    while IFS= read -r path; do arguments+=(--file "$path:$path"); done <"$work/programs"
    # Tests run in the directory of their package, and may read its files.
    cut -f3 "$work/tests" | sort -u >"$work/packages"
    while IFS= read -r package; do arguments+=(--file "$package:$package"); done <"$work/packages"
    add_repository
    add_compiler
}

# The latest commit of this repository, for tests that clone it.
add_repository() {
    local clone=$work/repository
    git -c safe.directory='*' clone --quiet --no-checkout --depth 1 "file://$REPO" "$clone" 2>/dev/null || return 0
    arguments+=(--file "$clone/.git:$REPO/.git")
}

# A C compiler, on read-only disks, because it is large and few tests use it.
add_compiler() {
    local tool part
    type -P gcc >/dev/null || return 0
    for tool in cc gcc as ld make; do
        ! type -P "$tool" >/dev/null || arguments+=(--bin "$tool")
    done
    arguments+=(--share "$(dirname "$(gcc -print-libgcc-file-name)")" --share /usr/include)
    for part in crt1.o Scrt1.o crti.o crtn.o libc.so libc_nonshared.a libm.so libmvec.so.1; do
        part=$(gcc -print-file-name="$part")
        [ ! -f "$part" ] || arguments+=(--file "$part:$(realpath -s "$part")")
    done
}
