# Builds what lab/suite packs.
# shellcheck shell=bash disable=SC2034,SC2154 # shares its variables with lab/suite

# Packages whose tests use a real mount.
readonly TEST_PACKAGES=(shunt-tests shunt-fuse)

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

# Sets SHUNT to the command, and writes the wanted test binaries to $work/tests.
build_all() {
    local packages=() package name
    for package in "${TEST_PACKAGES[@]}"; do packages+=(-p "$package"); done
    cd "$REPO" || die "cannot enter $REPO"
    SHUNT=$(cargo build --release -p shunt --message-format=json | artifacts false | cut -f2 | grep '/shunt$') ||
        die "the command does not build"
    cargo test --no-run --message-format=json "${packages[@]}" | artifacts true | sort >"$work/built" ||
        die "the tests do not build"
    : >"$work/tests"
    if ((${#only[@]})); then
        for name in "${only[@]}"; do awk -F '\t' -v name="$name" '$1 == name' "$work/built" >>"$work/tests"; done
    else
        cp "$work/built" "$work/tests"
    fi
}
