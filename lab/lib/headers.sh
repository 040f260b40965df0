# Headers of the lab's kernel for module builds, unpacked into the cache.
# shellcheck shell=bash

# Programs needed to build modules and BPF programs, as program:package.
readonly BUILD_NEEDS=(gcc-12:gcc-12 make:make pkg-config:pkg-config clang:clang pahole:pahole bpftool:bpftool tcc:tcc)

# Installs missing packages.
build_setup() {
    local need missing=()
    for need in "${BUILD_NEEDS[@]}"; do
        command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
    done
    # Headers needed to build libbpf from source.
    [ -f /usr/include/libelf.h ] || missing+=(libelf-dev)
    [ -f /usr/include/zlib.h ] || missing+=(zlib1g-dev)
    ((${#missing[@]})) || return 0
    install_packages "${missing[@]}"
}

# Sets HEADERS to the kernel build directory (KDIR) for version $KERNEL.
headers_find() {
    local lock tmp
    # shellcheck disable=SC2034 # read by who sourced this
    HEADERS=$KERNEL_DIR/build
    # A kernel built here includes them.
    [ ! -d "$HEADERS" ] || return 0
    HEADERS=$LAB_CACHE/headers-$KERNEL/usr/src/linux-headers-$KERNEL
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    if [ ! -d "$LAB_CACHE/headers-$KERNEL" ]; then
        say "fetching linux-headers-$KERNEL"
        tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX")
        local short=${KERNEL%-amd64} deb
        # apt's download user cannot write into a private directory.
        (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root download \
            "linux-headers-$KERNEL" "linux-headers-$short-common" "linux-kbuild-$short") >&2 ||
            { rm -rf "$tmp"; die "cannot fetch linux-headers-$KERNEL"; }
        for deb in "$tmp"/*.deb; do
            dpkg -x "$deb" "$tmp/root" || { rm -rf "$tmp"; die "cannot unpack $deb"; }
            rm -f "$deb"
        done
        # Replace the only absolute path in the packages.
        sed -i "s|include /usr/src|include $LAB_CACHE/headers-$KERNEL/usr/src|" \
            "$tmp/root/usr/src/linux-headers-$KERNEL/Makefile"
        mv -T "$tmp/root" "$LAB_CACHE/headers-$KERNEL"
        rm -rf "$tmp"
    fi
    exec {lock}>&-
}
