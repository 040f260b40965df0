# What the lab's parts build to pack it.
# shellcheck shell=bash

# All programs for the kernel at once, for all parts: one build serves them.
readonly FEATURES=shunt/extension,shunt/lsm

# All of the workspace, whatever is wanted of it: with fewer packages cargo would choose other features for their
# dependencies, and compile those once more.

# Prints where the command is that cargo builds; arguments are cargo's.
built_command() { cargo build --workspace --bin shunt --message-format=json "$@" | executable shunt; }

# Prints where the tests of this name are.
built_tests() { # NAME ARGUMENT...
    local name=$1
    shift
    cargo test --no-run --workspace --test "$name" --message-format=json "$@" | executable "$name"
}

executable() {
    sed -n 's|.*"name":"'"$1"'".*"executable":"\([^"]*\)".*|\1|p' | grep .
}
