# The crates that are published, found by their manifests.
# shellcheck shell=bash disable=SC2034 # read by who sources this

mapfile -t PUBLISHED_MANIFESTS < <(grep -lx 'publish = true' crates/*/Cargo.toml)
mapfile -t PUBLISHED < <(sed -n 's/^name = "\(.*\)"$/\1/p' "${PUBLISHED_MANIFESTS[@]}")
