# Builds what lab/suite packs.
# shellcheck shell=bash disable=SC2034,SC2154 # shares its variables with lab/suite

# Where the packages are whose tests use a real mount.
readonly TEST_DIRECTORIES=(tests crates/fuse)

# From cargo's messages on standard input, prints "directory-name <tab> executable <tab> directory" for
# the artifacts whose profile says test=$1; the directory is the package's, its last part goes into the
# name because two packages may have tests of one name. The hash in cargo's file names goes.
artifacts() {
    grep '"reason":"compiler-artifact"' | grep "\"test\":$1}" |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"executable":"\([^"]*\)".*|\2\t\1|p' |
        while IFS=$'\t' read -r executable package; do
            name=${executable##*/}
            printf '%s-%s\t%s\t%s\n' "${package##*/}" "${name%-????????????????}" "$executable" "$package"
        done
}

# Sets SHUNT to the command, and writes the wanted test binaries to $work/tests: what artifacts() prints,
# and the filters of their own that $select gives them.
build_all() {
    local manifests name
    # Their manifests tell the packages apart in cargo's messages.
    manifests=$(printf '|%s' "${TEST_DIRECTORIES[@]}")
    cd "$REPO" || die "cannot enter $REPO"
    SHUNT=$(cargo build --release -p shunt --message-format=json | artifacts false | cut -f2 | grep '/shunt$') ||
        die "the command does not build"
    # The whole workspace, as in "cargo test --workspace": with fewer packages cargo would choose other features
    # for their dependencies, and compile those once more.
    cargo test --no-run --workspace --message-format=json |
        grep -E "\"manifest_path\":\"$REPO/(${manifests#|})/Cargo.toml\"" | artifacts true | sort >"$work/built" ||
        die "the tests do not build"
    : >"$work/tests"
    if [ -n "$select" ]; then
        sed 's/#.*//' "$select" | while read -r name filters; do
            [ -z "$name" ] || awk -F '\t' -v OFS='\t' -v name="$name" -v filters="$filters" '
                $1 == name { print $0, filters; found = 1 }
                END { exit !found }' "$work/built" >>"$work/tests" || die "$select: no test binary $name"
        done
    elif ((${#only[@]})); then
        for name in "${only[@]}"; do awk -F '\t' -v name="$name" '$1 == name' "$work/built" >>"$work/tests"; done
    else
        cp "$work/built" "$work/tests"
    fi
}
