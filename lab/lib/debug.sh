# A debug kernel with lockdep and KASAN for a kernel of lab/kernels, from Debian's source of that version and with only the options
# that the guest needs (lab/debug.config). Built once, into the cache: 22 minutes on two busy processors; 2 GB, and 6 GB during the
# build.
# shellcheck shell=bash

# Packages of the build, besides the compiler.
readonly DEBUG_NEEDS=(make:make flex:flex bison:bison bc:bc xz:xz-utils pahole:pahole rsync:rsync)

debug_setup() {
    local need missing=()
    for need in "${DEBUG_NEEDS[@]}"; do
        command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
    done
    [ -f /usr/include/libelf.h ] || missing+=(libelf-dev)
    ((${#missing[@]})) || return 0
    install_packages "${missing[@]}"
}

# Unpacks the source of the kernel at $1: of its version, built for the same suite.
debug_source() { # DIRECTORY
    local dir=$1 version=${KERNEL%%[+-]*} series suite package revision
    series=${version%.*}
    suite=${KERNEL#*+deb} suite=${suite%%-*}
    package=linux-source-$series
    archive_update_for "$package"
    # The revision of a package for Debian 12 ends in ~deb12u1 or ~bpo12+1, that of one for Debian 13 in ~bpo13+1 or in nothing.
    revision=$(archive apt-cache madison "$package" | awk -v version="$version" -v suite="$suite" '
        $3 !~ "^" version "-" { next }
        $3 ~ "~(deb|bpo)" suite { print $3; found = 1; exit }
        $3 !~ "~" && !other { other = $3 }
        END { if (!found && other) print other }')
    [ -n "$revision" ] || die "Debian's archive has no source of kernel $version"
    archive_unpack "$dir.source" "$package=$revision"
    mkdir -p "$dir"
    tar -C "$dir" --strip-components=1 -xJf "$dir.source/usr/src/$package.tar.xz" || die "cannot unpack the source of kernel $version"
    rm -rf "$dir.source"
}

# Checks that all options of lab/debug.config are set: kconfig silently drops an option with a missing dependency. An option that
# some kernels of the lab lack has "?" after its name.
debug_check() { # DIRECTORY
    local want
    grep '^CONFIG_[A-Z0-9_]*=[^n]' "$LAB/debug.config" | while read -r want; do
        grep -qx "$want" "$1/.config" || { say "the configuration lacks $want"; return 1; }
    done
}

# Sets KERNEL to the version of the debug kernel for $LAB_KERNEL; builds it if it is not in the cache.
debug_find() {
    local stock dir build new lock
    debug_setup
    kernel_find
    headers_find
    stock=$KERNEL
    KERNEL=${stock%%[+-]*}-debug
    dir=$LAB_CACHE/linux-$KERNEL build=$LAB_CACHE/build-$KERNEL new=$LAB_CACHE/new-$KERNEL
    exec {lock}>"$LAB_CACHE/debug.lock"
    flock "$lock"
    if [ ! -d "$dir" ]; then
        [ -f "$build/Makefile" ] || KERNEL=$stock debug_source "$build"
        local log=$LAB_CACHE/$KERNEL.log
        local make=(make -s -C "$build" CC="$COMPILER" HOSTCC="$COMPILER" LOCALVERSION=-debug)
        sed 's/?=/=/' "$LAB/debug.config" >"$build/debug.config"
        if ! compiler_run "$build" "${make[@]}" KCONFIG_ALLCONFIG="$build/debug.config" allnoconfig >"$log" 2>&1 ||
            ! debug_check "$build" || ! say "building kernel $KERNEL" ||
            ! compiler_run "$build" "${make[@]}" -j"$(nproc)" bzImage modules modules_prepare >>"$log" 2>&1; then
            die "the debug kernel does not build: $log"
        fi
        mkdir -p "$new/boot"
        cp "$build/arch/x86/boot/bzImage" "$new/boot/vmlinuz-$KERNEL"
        # Needed to build modules: headers, scripts, and the BTF in vmlinux.
        rm -f "$build"/vmlinux.o "$build"/.tmp_vmlinux* && find "$build" -name '*.o' -not -path '*/scripts/*' \
            -not -path '*/tools/*' -delete
        mv "$build" "$new/build"
        mv -T "$new" "$dir"
    fi
    exec {lock}>&-
}
