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

# Sets HEADERS to the kernel build directory (KDIR) for release $KERNEL, and COMPILER to the compiler that this kernel was built by.
headers_find() {
    local lock root=$LAB_CACHE/headers-$KERNEL short=${KERNEL%-amd64}
    HEADERS=$KERNEL_DIR/build
    # A kernel built here (lab/lib/debug.sh) includes them.
    if [ -d "$HEADERS" ]; then
        COMPILER=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$HEADERS/.config")
        return 0
    fi
    HEADERS=$root/usr/src/linux-headers-$KERNEL
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    if [ ! -d "$root" ]; then
        archive_update_for "linux-headers-$KERNEL"
        archive_unpack "$root" "linux-headers-$KERNEL" "linux-headers-$short-common" "linux-kbuild-$short"
        # Replace the only absolute paths in the packages.
        sed -i -E "s#(=|include )/usr/src#\\1$root/usr/src#" "$HEADERS/Makefile"
    fi
    exec {lock}>&-
    COMPILER=$(sed -n 's/^CC = .*\(gcc-[0-9]*\)$/\1/p' "$HEADERS/.kernelvariables")
    [ -n "$COMPILER" ] || die "$HEADERS/.kernelvariables names no compiler"
}

# Runs make in the directory of a module, for $KERNEL.
module_make() { # DIRECTORY ARGUMENT...
    local dir=$1
    shift
    compiler_run "$dir" make -s -C "$dir" "$@" KDIR="$HEADERS" CC="$COMPILER"
}

# Runs a command that needs $COMPILER: here, or where this machine lacks that compiler, in a root of Debian 13. That root has the
# cache and a directory at the paths that they have here.
compiler_run() { # DIRECTORY COMMAND...
    local dir=$1
    shift
    if command -v "$COMPILER" >/dev/null; then
        "$@"
    else
        builder_run "$dir" "$@"
    fi
}

# Creates a root of Debian 13 in the cache, for kernels that were built by its compiler: 400 MB.
builder_find() {
    local lock packages=$COMPILER,make,pahole,bpftool,libc6-dev,gawk,flex,bison,bc,libelf-dev,zlib1g-dev,perl,python3-minimal,rsync,xz-utils
    BUILDER=$LAB_CACHE/builder-$(cksum <<<"$packages" | cut -d' ' -f1)
    exec {lock}>"$LAB_CACHE/builder.lock"
    flock "$lock"
    if [ ! -d "$BUILDER" ]; then
        command -v mmdebstrap >/dev/null || install_packages mmdebstrap
        say "creating a root of Debian 13 with $COMPILER"
        rm -rf "$BUILDER.new"
        mmdebstrap --quiet --variant=apt --include="$packages" trixie "$BUILDER.new" >&2 ||
            die "cannot create a root of Debian 13"
        mv -T "$BUILDER.new" "$BUILDER"
    fi
    exec {lock}>&-
}

# Runs a command in that root.
builder_run() { # DIRECTORY COMMAND...
    local dir=$1
    shift
    builder_find
    # As another user, in a user namespace, which may mount as well.
    local user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --mount --propagation private sh -ec '
        builder=$1 cache=$2 dir=$3
        shift 3
        # objtool reads limits in /proc.
        for path in /dev /proc "$cache" "$dir"; do
            mkdir -p "$builder$path"
            mount --rbind "$path" "$builder$path"
        done
        exec chroot "$builder" env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' sh "$BUILDER" "$LAB_CACHE" "$dir" "$@"
}
