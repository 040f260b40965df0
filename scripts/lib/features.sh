# The features with which tests, lints and the lab build the workspace. One set, so that each crate is compiled once.
# shellcheck shell=bash disable=SC2034 # read by who sources this
FEATURES=shunt-cli/extension,shunt-cli/lsm
