# Builds of cargo that the lab's scripts pack.
# shellcheck shell=bash

# The same profile and features as in scripts/test, and always the tests of the whole workspace: for single packages cargo would
# select other features of the dependencies and compile them again. SHUNT_PROFILE=release selects that profile.
# shellcheck source=../../scripts/lib/features.sh
. "$REPO/scripts/lib/features.sh"
readonly CARGO_OPTIONS=(--workspace --features "$FEATURES" --profile "${SHUNT_PROFILE:-dev}")

# Builds the command and prints its path.
built_command() { built_for_tests | executables false | cut -f2 | grep '/shunt$'; }

# Builds the programs of the package in this directory, and prints their paths.
built_programs() { # DIRECTORY
    built_for_tests | executables false | awk -F '\t' -v package="$REPO/$1" '$3 == package { print $2 }'
}

# Builds the tests, and prints the path of the integration tests of the package in this directory.
built_tests() { # DIRECTORY
    all_tests | awk -F '\t' -v package="$REPO/$1" '$3 == package { print $2; found = 1 } END { exit !found }'
}

# Builds all integration tests, and prints "package <tab> executable <tab> package directory" for each.
all_tests() { built_for_tests | executables true; }

built_for_tests() { cargo test "${CARGO_OPTIONS[@]}" --no-run --test '*' --message-format=json; }

# Prints the executables in cargo's messages on standard input whose profile has test=$1 (the field before the features).
executables() {
    grep '"reason":"compiler-artifact"' | grep "\"test\":$1},\"features\"" |
        sed -n 's|.*"manifest_path":"\(/[^"]*/\([^/"]*\)\)/Cargo.toml".*"executable":"\([^"]*\)".*|\2\t\3\t\1|p'
}
