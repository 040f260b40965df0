# Debian's archive, for packages of other suites than the machine's. The lists and sources are the lab's own, so the machine's stay
# as they are.
# shellcheck shell=bash

# Suites that have kernels of lab/kernels.
readonly ARCHIVE_SOURCES='deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie-backports main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security trixie-security main'

# Runs a command of apt with the lab's sources.
archive() { # PROGRAM ARGUMENT...
    local dir=$LAB_CACHE/archive
    mkdir -p "$dir/lists/partial" "$dir/packages/archives/partial"
    printf '%s\n' "$ARCHIVE_SOURCES" >"$dir/sources.list"
    cat >"$dir/apt.conf" <<END
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$dir/lists";
Dir::Cache "$dir/packages";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
    APT_CONFIG=$dir/apt.conf "$@"
}

# Fetches the lists if they lack a package.
archive_update_for() { # PACKAGE
    [ -n "$(archive apt-cache madison "$1" 2>/dev/null)" ] || archive apt-get -qq update >&2 || die "cannot fetch the lists of Debian's archive"
    [ -n "$(archive apt-cache madison "$1")" ] || die "Debian's archive has no $1: name a newer one in lab/kernels"
}

# Downloads packages and unpacks them into a new directory. The final rename makes that atomic. Packages whose names end in "?" are
# left out where the archive does not have them.
archive_unpack() { # DIRECTORY PACKAGE...
    local dir=$1 package deb tmp packages=()
    shift
    for package; do
        if [[ $package == *\? ]]; then
            package=${package%\?}
            [ -n "$(archive apt-cache madison "$package")" ] || continue
        fi
        packages+=("$package")
    done
    tmp=$(mktemp -d "$LAB_CACHE/fetch.XXXXXX")
    say "fetching ${packages[*]}"
    mkdir "$tmp/root"
    (cd "$tmp" && archive apt-get -qq download "${packages[@]}") >&2 || { rm -rf "$tmp"; die "cannot fetch ${packages[*]}"; }
    for deb in "$tmp"/*.deb; do
        dpkg -x "$deb" "$tmp/root" || { rm -rf "$tmp"; die "cannot unpack $deb"; }
        rm -f "$deb"
    done
    mv -T "$tmp/root" "$dir"
    rm -rf "$tmp"
}

# Unpacks packages into a directory of the cache, unless an earlier run has done that.
archive_find() { # DIRECTORY PACKAGE...
    local lock
    exec {lock}>"$LAB_CACHE/lock"
    flock "$lock"
    if [ ! -d "$1" ]; then
        archive_update_for "$2"
        archive_unpack "$@"
    fi
    exec {lock}>&-
}
