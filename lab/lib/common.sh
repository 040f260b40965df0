# Common definitions of the lab's scripts on the host: paths, messages, exit status of the lab itself.
# shellcheck shell=bash disable=SC2034

# As with timeout(1): statuses below 124 belong to the guest's command.
readonly EXIT_TIMEOUT=124
readonly EXIT_LAB=125

LAB=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
REPO=$(cd "$LAB/.." && pwd)
# Without links: headers there refer to each other by absolute paths.
LAB_CACHE=$(realpath -m "${LAB_CACHE:-$LAB/cache}")
# getcap, mkfs.ext4 and depmod are in sbin, which is not in the PATH of ordinary users.
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'lab: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit "$EXIT_LAB"
}

# Installs packages, and prints their names.
install_packages() {
    local sudo=()
    command -v apt-get >/dev/null || die "missing: $*; there is no apt-get to install them with"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "missing: $*; run lab/setup as root"
        sudo=(sudo)
    fi
    say "installing $*"
    apt-cache show "$@" >/dev/null 2>&1 || "${sudo[@]}" apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends -o DPkg::Lock::Timeout=600 "$@" >/dev/null
}
