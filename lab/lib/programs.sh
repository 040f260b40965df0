# What the lab's parts pack of what cargo builds.
# shellcheck shell=bash

# As scripts/test builds it: by the same profile, with the same features, and always the tests of the whole workspace. For less
# cargo would choose other features of the dependencies, and compile those once more. SHUNT_PROFILE=release asks for that one.
# shellcheck source=../../scripts/lib/features.sh
. "$REPO/scripts/lib/features.sh"
readonly CARGO_OPTIONS=(--workspace --features "$FEATURES" --profile "${SHUNT_PROFILE:-dev}")

# Prints where the command is, which is built for its tests.
built_command() { built_for_tests | executables false | cut -f2 | grep '/shunt$'; }

# Prints where the integration tests of the package in this directory are.
built_tests() { # DIRECTORY
    all_tests | awk -F '\t' -v package="$REPO/$1" '$3 == package { print $2; found = 1 } END { exit !found }'
}

# Builds all integration tests; prints "package <tab> executable <tab> package's directory" of each.
all_tests() { built_for_tests | executables true; }

built_for_tests() { cargo test "${CARGO_OPTIONS[@]}" --no-run --test '*' --message-format=json; }

# Of cargo's messages on standard input, the executables whose profile, after which come features, says test=$1.
executables() {
    grep '"reason":"compiler-artifact"' | grep "\"test\":$1},\"features\"" |
        sed -n 's|.*"manifest_path":"\(/[^"]*/\([^/"]*\)\)/Cargo.toml".*"executable":"\([^"]*\)".*|\2\t\3\t\1|p'
}
