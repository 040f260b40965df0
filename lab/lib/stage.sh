# Fills a directory ($STAGE) with the guest's root file system: programs at their paths on the host,
# and the shared libraries that they need.
# shellcheck shell=bash

staged=()

# Creates the initial root: merged /usr as on Debian, and busybox under the name of every applet.
stage_root() {
    local dir
    mkdir -p "$STAGE"/{dev,etc,proc,sys,tmp,run,root,home,mnt,scratch,lab,var/tmp} "$STAGE"/usr/{bin,sbin,lib,lib64}
    for dir in bin sbin lib lib64; do
        ln -s "usr/$dir" "$STAGE/$dir"
    done
    cp "$(command -v busybox)" "$STAGE/usr/bin/busybox"
    "$STAGE/usr/bin/busybox" --install "$STAGE/usr/bin"
    # The path of modprobe that the kernel uses to load modules.
    ln -s ../bin/modprobe "$STAGE/usr/sbin/modprobe"
    cp -r "$LAB/guest/etc/." "$STAGE/etc/"
    ln -s ../proc/self/mounts "$STAGE/etc/mtab"
    install -m 755 "$LAB/guest/init" "$STAGE/init"
}

# Copies file or directory $1 to $2. Only $1 itself is followed if it is a link.
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

# Records the programs in directory $1, so that their libraries are added.
stage_programs_of() {
    local path
    while IFS= read -r -d '' path; do staged+=("$path"); done < <(find "$1" -type f -perm /111 -print0)
}

# Adds a program: by name at its path on the host, by path in /usr/bin.
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

# Adds the shared libraries of all programs added so far.
stage_libraries() {
    local found lib
    ((${#staged[@]})) || return 0
    # ldd fails for scripts and static programs, which need no libraries.
    found=$(ldd "${staged[@]}" 2>/dev/null || true)
    if grep 'not found' <<<"$found" >&2; then die "a library is missing on this machine"; fi
    awk '$2 == "=>" && $3 ~ /^\// { print $3; next } $1 ~ /^\// && $2 ~ /^\(0x/ { print $1 }' <<<"$found" |
        sort -u | while IFS= read -r lib; do
        mkdir -p "$STAGE$(dirname "$lib")"
        cp -L --remove-destination --preserve=mode "$lib" "$STAGE$lib"
    done
}

stage_pack() { (cd "$STAGE" && find . -mindepth 1 | cpio --quiet -o -H newc -R 0:0); }
