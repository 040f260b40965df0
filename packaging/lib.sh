# Functions of the scripts that build packages.
# shellcheck shell=bash

say() { printf 'packages: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Installs the Debian packages of missing commands.
install_missing() { # COMMAND:PACKAGE...
    local pair missing=()
    for pair; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "cannot install the missing packages ${missing[*]}: not root; run apt-get install as root"
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=600 "${missing[@]}")
    "${install[@]}" >/dev/null || { apt-get update -qq && "${install[@]}" >/dev/null; }
}

# The version of this commit: VERSION if it is tagged so, and else the date and id of the commit. These sort before the release (~) as
# long as it does not exist, and after it (+) from then on.
snapshot_version() { # VERSION
    if git tag --points-at HEAD 2>/dev/null | grep -qx "v$1"; then
        printf '%s' "$1"
        return
    fi
    local mark='~'
    ! git rev-parse -q --verify "refs/tags/v$1" >/dev/null || mark=+
    TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S | tr -d '\n' | sed "s/^/$1${mark}git/"
    git rev-parse --short=8 HEAD | sed 's/^/./' | tr -d '\n'
}

# Prints an owned, dated and ordered tar file of a directory: the same bytes for the same content.
reproducible_tar() { # DIRECTORY MEMBER...
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -C "$1" -cf - "${@:2}"
}
