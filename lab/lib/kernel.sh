# Debian's 6.12 kernel image, unpacked into the cache and not installed.
# shellcheck shell=bash

# Prints the newest 6.12 image for ordinary PCs in the package lists (not cloud, not realtime).
kernel_candidate() {
    apt-cache search --names-only '^linux-image-6\.12\.[0-9]+.*-amd64$' |
        awk '$1 !~ /cloud|rt-amd64/ { sub(/^linux-image-/, "", $1); print $1 }' | sort -V | tail -n 1
}

# Downloads the image of version $1 and unpacks it at $2. The final rename makes that atomic.
kernel_fetch() {
    local version=$1 dir=$2 tmp
    tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX")
    say "fetching linux-image-$version"
    # apt's download user cannot write into a private directory.
    if (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "linux-image-$version") >&2 &&
        dpkg -x "$tmp"/*.deb "$tmp/root"; then
        rm -f "$tmp"/*.deb
        mv -T "$tmp/root" "$dir"
        rm -rf "$tmp"
    else
        rm -rf "$tmp"
        die "cannot fetch linux-image-$version"
    fi
}

# Sets KERNEL (version) and KERNEL_DIR (unpacked image). LAB_KERNEL selects a version; otherwise the
# newest one in the cache is used, and the package archive only if the cache is empty.
kernel_find() {
    mkdir -p "$LAB_CACHE"
    local lock
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    KERNEL=${LAB_KERNEL:-$(cd "$LAB_CACHE" && printf '%s\n' linux-6.12* | sed -n '/-debug$/d; s/^linux-\(6.*[^*]\)$/\1/p' | sort -V | tail -n 1)}
    KERNEL=${KERNEL:-$(kernel_candidate)}
    if [ -z "$KERNEL" ]; then
        [ "$(id -u)" != 0 ] || apt-get -qq update >&2
        KERNEL=$(kernel_candidate)
    fi
    [ -n "$KERNEL" ] || die "the package lists know no linux-image-6.12*-amd64 (Debian 12 has it in bookworm-security)"
    KERNEL_DIR=$LAB_CACHE/linux-$KERNEL
    [ -d "$KERNEL_DIR" ] || kernel_fetch "$KERNEL" "$KERNEL_DIR"
    modules_pack
    exec {lock}>&-
}

# Packs the modules in lab/modules, with their dependencies, as a separate initramfs part ($MODULES):
# decompressing them is slow, and they change only with the kernel or the list.
modules_pack() {
    local list tmp name path
    # A kernel with everything built in has no modules.
    if [ ! -d "$KERNEL_DIR/lib/modules" ]; then
        MODULES=/dev/null
        return 0
    fi
    list=$(sed 's/#.*//' "$LAB/modules")
    MODULES=$KERNEL_DIR/modules-$(cksum <<<"$list" | cut -d' ' -f1).cpio
    [ ! -f "$MODULES" ] || return 0
    [ -f "$KERNEL_DIR/lib/modules/$KERNEL/modules.dep" ] || depmod -b "$KERNEL_DIR" "$KERNEL"
    tmp=$(mktemp -d "$LAB_CACHE/modules.XXXXXX")
    mkdir -p "$tmp/usr/lib/modules/$KERNEL"
    ln -s usr/lib "$tmp/lib"
    for name in $list; do
        modprobe -d "$KERNEL_DIR" -S "$KERNEL" --show-depends "$name" || die "kernel $KERNEL has no module $name"
    done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r path; do
        # Decompressed: the guest's modprobe lacks xz, and decompression is slow under emulation.
        xz -dc "$path" >"$tmp/usr/lib/modules/$KERNEL/$(basename "$path" .xz)"
    done
    cp "$KERNEL_DIR/lib/modules/$KERNEL"/modules.{builtin,builtin.modinfo,order} "$tmp/usr/lib/modules/$KERNEL/"
    depmod -b "$tmp" "$KERNEL" 2>/dev/null
    rm "$tmp/lib"
    (cd "$tmp" && find . -mindepth 1 | cpio --quiet -o -H newc -R 0:0) >"$MODULES.new"
    mv "$MODULES.new" "$MODULES"
    rm -rf "$tmp"
}
