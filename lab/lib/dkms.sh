# DKMS, on this machine or in the root of Debian 13, whichever has the compiler of $KERNEL.
# shellcheck shell=bash disable=SC2034

# Sets DKMS to its command. The root of Debian 13 has none: the programs are unpacked into the cache.
dkms_find() {
    local lock dir=$LAB_CACHE/dkms
    if command -v "$COMPILER" >/dev/null; then
        command -v dkms >/dev/null || install_packages dkms
        DKMS=(dkms)
        return 0
    fi
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    if [ ! -d "$dir" ]; then
        archive_update_for dkms
        archive_unpack "$dir" dkms kmod libkmod2 patch
    fi
    exec {lock}>&-
    DKMS=(env "PATH=$dir/usr/sbin:$dir/usr/bin:/usr/sbin:/usr/bin" "LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu" "$dir/usr/sbin/dkms")
}

# Runs a command where the compiler of $KERNEL is, with a directory and this repository at their paths.
run_for_kernel() { # DIRECTORY COMMAND...
    local dir=$1
    shift
    if command -v "$COMPILER" >/dev/null; then
        "$@"
    else
        builder_run "$dir" "$@"
    fi
}
