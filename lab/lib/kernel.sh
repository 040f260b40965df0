# Kernel images of Debian (lab/kernels), unpacked into the cache and not installed.
# shellcheck shell=bash

. "$LAB/lib/archive.sh"

# Prints the names in lab/kernels, oldest first.
kernel_names() { sed 's/#.*//' "$LAB/kernels" | awk 'NF { print $1 }'; }

# Prints the release of a kernel in lab/kernels.
kernel_release() { # NAME
    sed 's/#.*//' "$LAB/kernels" | awk -v name="$1" '$1 == name { print $2 }'
}

# Sets KERNEL (release), KERNEL_DIR (unpacked image), KERNEL_IMAGE (to boot) and MODULES. LAB_KERNEL is a name in lab/kernels, or the
# release of a kernel in the cache.
kernel_find() {
    mkdir -p "$LAB_CACHE"
    local lock name
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    name=${LAB_KERNEL:-$(kernel_names | head -n 1)}
    KERNEL=$(kernel_release "$name")
    if [ -z "$KERNEL" ]; then
        [ -d "$LAB_CACHE/linux-$name" ] || die "no kernel $name; lab/kernels has $(kernel_names | paste -sd ' ')"
        KERNEL=$name
    fi
    KERNEL_DIR=$LAB_CACHE/linux-$KERNEL
    if [ ! -d "$KERNEL_DIR" ]; then
        archive_update_for "linux-image-$KERNEL"
        # Since 6.16 the image is split into several packages.
        archive_unpack "$KERNEL_DIR" "linux-image-$KERNEL" "linux-base-$KERNEL?" "linux-binary-$KERNEL?" "linux-modules-$KERNEL?"
        # Since then in /usr, too.
        [ -d "$KERNEL_DIR/lib" ] || ln -s usr/lib "$KERNEL_DIR/lib"
    fi
    KERNEL_IMAGE=$KERNEL_DIR/boot/vmlinuz-$KERNEL
    [ -f "$KERNEL_IMAGE" ] || KERNEL_IMAGE=$KERNEL_DIR/lib/modules/$KERNEL/vmlinuz
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
        modprobe -d "$KERNEL_DIR" -S "$KERNEL" --show-depends "${name%\?}" 2>/dev/null || [[ $name == *\? ]] ||
            die "kernel $KERNEL has no module $name"
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
