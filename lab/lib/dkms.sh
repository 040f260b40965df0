# DKMS, on this machine or in the root of Debian 13, whichever has the compiler of $KERNEL.
# shellcheck shell=bash disable=SC2034

# Sets DKMS to its command. The root of Debian 13 has none: the programs are unpacked into the cache.
dkms_find() {
    local dir=$LAB_CACHE/dkms
    if command -v "$COMPILER" >/dev/null; then
        command -v dkms >/dev/null || install_packages dkms
        DKMS=(dkms)
        return 0
    fi
    archive_find "$dir" dkms kmod libkmod2 patch
    DKMS=(env "PATH=$dir/usr/sbin:$dir/usr/bin:/usr/sbin:/usr/bin" "LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu" "$dir/usr/sbin/dkms")
}
