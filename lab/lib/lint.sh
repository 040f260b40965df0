# The checkers of kernel code, unpacked into the cache: checkpatch.pl of a kernel's source, and sparse of Debian 13.
# shellcheck shell=bash disable=SC2034

# Sets CHECKPATCH for a kernel version such as 7.3.
checkpatch_find() { # VERSION
    local lock dir=$LAB_CACHE/checkpatch-$1 tmp
    CHECKPATCH=$dir/scripts/checkpatch.pl
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    if [ ! -d "$dir" ]; then
        archive_update_for "linux-source-$1"
        tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX")
        archive_unpack "$tmp/package" "linux-source-$1"
        mkdir "$tmp/source"
        # The lists of words and structures that it reads are beside it.
        tar -C "$tmp/source" --strip-components=1 --wildcards -xJf "$tmp/package/usr/src/linux-source-$1.tar.xz" \
            '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch' ||
            { rm -rf "$tmp"; die "cannot unpack the source of Linux $1"; }
        mv -T "$tmp/source" "$dir"
        rm -rf "$tmp"
    fi
    exec {lock}>&-
}

# Sets SPARSE, which runs in the root of Debian 13 (builder_find).
sparse_find() {
    local dir=$LAB_CACHE/sparse
    SPARSE=$dir/usr/bin/sparse
    archive_find "$dir" sparse
}
