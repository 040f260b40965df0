# A debug kernel with lockdep and KASAN, from Debian's 6.12 source and with only the options that the guest needs
# (lab/debug.config). Built once, into the cache: 22 minutes on two busy processors; 2 GB, and 6 GB during the build.
# shellcheck shell=bash

readonly DEBUG_NEEDS=(gcc-12:gcc-12 make:make flex:flex bison:bison bc:bc xz:xz-utils pahole:pahole rsync:rsync)

debug_setup() {
    local need missing=()
    for need in "${DEBUG_NEEDS[@]}"; do
        command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
    done
    [ -f /usr/include/libelf.h ] || missing+=(libelf-dev)
    ((${#missing[@]})) || return 0
    install_packages "${missing[@]}"
}

# Unpacks the source of kernel version $1 at $2.
debug_source() {
    local version=$1 dir=$2 tmp package
    package=$(apt-cache madison linux-source-6.12 | awk -v version="$version" '$3 ~ "^" version "-" { print $3; exit }')
    [ -n "$package" ] || die "the package lists know no source of kernel $version"
    tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX")
    say "fetching linux-source-6.12 $package"
    if ! (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download "linux-source-6.12=$package") >&2 ||
        ! dpkg -x "$tmp"/*.deb "$tmp/root" || ! mkdir -p "$dir" ||
        ! tar -C "$dir" --strip-components=1 -xJf "$tmp/root/usr/src/linux-source-6.12.tar.xz"; then
        rm -rf "$tmp" "$dir"
        die "cannot fetch the source of kernel $version"
    fi
    rm -rf "$tmp"
}

# Checks that all options of lab/debug.config are set: kconfig silently drops an option with a missing dependency.
debug_check() {
    local want
    grep '^CONFIG_.*=[^n]' "$LAB/debug.config" | while read -r want; do
        grep -qx "$want" "$1/.config" || { say "the configuration lacks $want"; return 1; }
    done
}

# Sets KERNEL to the debug kernel's version; builds it if it is not in the cache.
debug_find() {
    local version dir build lock
    debug_setup
    kernel_find
    version=${KERNEL%%[+-]*}
    KERNEL=$version-debug
    dir=$LAB_CACHE/linux-$KERNEL build=$LAB_CACHE/debug-build
    exec {lock}>"$LAB_CACHE/debug.lock"
    flock "$lock"
    if [ ! -d "$dir" ]; then
        [ -f "$build/Makefile" ] || debug_source "$version" "$build"
        local make=(make -s -C "$build" CC=gcc-12 HOSTCC=gcc-12 LOCALVERSION=-debug)
        if ! "${make[@]}" KCONFIG_ALLCONFIG="$LAB/debug.config" allnoconfig >"$LAB_CACHE/debug.log" 2>&1 ||
            ! debug_check "$build" || ! say "building kernel $KERNEL" ||
            ! "${make[@]}" -j"$(nproc)" bzImage modules modules_prepare >>"$LAB_CACHE/debug.log" 2>&1; then
            die "the debug kernel does not build: $LAB_CACHE/debug.log"
        fi
        mkdir -p "$LAB_CACHE/debug-new/boot"
        cp "$build/arch/x86/boot/bzImage" "$LAB_CACHE/debug-new/boot/vmlinuz-$KERNEL"
        # Needed to build modules: headers, scripts, and the BTF in vmlinux.
        rm -f "$build"/vmlinux.o "$build"/.tmp_vmlinux* && find "$build" -name '*.o' -not -path '*/scripts/*' \
            -not -path '*/tools/*' -delete
        mv "$build" "$LAB_CACHE/debug-new/build"
        mv -T "$LAB_CACHE/debug-new" "$dir"
    fi
    exec {lock}>&-
}
