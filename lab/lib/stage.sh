# Fills a directory ($STAGE) with the guest's root: programs at their host paths, plus the shared
# libraries they name.
# shellcheck shell=bash

staged=()

# The empty root: merged /usr as on Debian, busybox under every applet's name.
stage_root() {
    local dir
    mkdir -p "$STAGE"/{dev,etc,proc,sys,tmp,run,root,home,mnt,scratch,lab,var/tmp} "$STAGE"/usr/{bin,sbin,lib,lib64}
    for dir in bin sbin lib lib64; do
        ln -s "usr/$dir" "$STAGE/$dir"
    done
    cp "$(command -v busybox)" "$STAGE/usr/bin/busybox"
    "$STAGE/usr/bin/busybox" --install "$STAGE/usr/bin"
    # The path at which the kernel looks when it wants a module.
    ln -s ../bin/modprobe "$STAGE/usr/sbin/modprobe"
    cp -r "$LAB/guest/etc/." "$STAGE/etc/"
    ln -s ../proc/self/mounts "$STAGE/etc/mtab"
    install -m 755 "$LAB/guest/init" "$STAGE/init"
}

# Copies file or directory $1 to $2. A link is followed at the top only.
stage_file() {
    local src=$1 dst=$STAGE/${2#/}
    [ -e "$src" ] || die "no such file: $src"
    mkdir -p "$(dirname "$dst")"
    if [ -d "$src" ]; then
        mkdir -p "$dst"
        cp -a "$src/." "$dst/"
        stage_programs_of "$src"
    else
        cp -L --remove-destination --preserve=mode,timestamps "$src" "$dst"
        staged+=("$src")
    fi
}

# Notes the programs in directory $1, so that their libraries come along.
stage_programs_of() {
    local path
    while IFS= read -r -d '' path; do staged+=("$path"); done < <(find "$1" -type f -perm /111 -print0)
}

# A program by name goes to the path it has here, one given by path goes to /usr/bin.
stage_bin() {
    local path
    case $1 in
    */*) stage_file "$1" "/usr/bin/${1##*/}" ;;
    *)
        path=$(type -P "$1") || die "no such program: $1"
        stage_file "$path" "$path"
        ;;
    esac
}

# Adds the libraries that everything staged so far was linked against.
stage_libraries() {
    local found lib
    ((${#staged[@]})) || return 0
    # ldd fails on scripts and static programs, which need nothing.
    found=$(ldd "${staged[@]}" 2>/dev/null || true)
    if grep 'not found' <<<"$found" >&2; then die "a library is missing on this machine"; fi
    awk '$2 == "=>" && $3 ~ /^\// { print $3; next } $1 ~ /^\// && $2 ~ /^\(0x/ { print $1 }' <<<"$found" |
        sort -u | while IFS= read -r lib; do
        mkdir -p "$STAGE$(dirname "$lib")"
        cp -L --remove-destination --preserve=mode "$lib" "$STAGE$lib"
    done
}

stage_pack() { (cd "$STAGE" && find . -mindepth 1 | cpio --quiet -o -H newc -R 0:0); }
