# Builds the programs that lab/suite packs.
# shellcheck shell=bash disable=SC2034,SC2154 # shares its variables with lab/suite

. "$LAB/lib/programs.sh"

# Directories of the packages whose tests use a real mount.
readonly TEST_DIRECTORIES=(tests crates/fuse)

# Sets SHUNT to the command, writes the programs that tests start to $work/programs, and the selected tests to
# $work/tests, one line per module of a test binary:
# "binary-module <tab> executable <tab> package directory <tab> names of the tests". Each module runs in its own process, because
# tests may count resources of the whole process. The file $select lists modules with filters, $only lists modules; $filters
# select among their tests by substrings of the names.
build_all() {
    local directory name own
    cd "$REPO" || die "cannot enter $REPO"
    SHUNT=$(built_command) || die "the command does not build"
    all_tests >"$work/built" || die "the tests do not build"
    built_programs tests >"$work/programs" || die "the programs of the tests do not build"
    for directory in "${TEST_DIRECTORIES[@]}"; do
        awk -F '\t' -v package="$REPO/$directory" '$3 == package' "$work/built"
    done | while IFS=$'\t' read -r name executable directory; do
        "$executable" --list --format terse | sed -n 's/: test$//p' | sort |
            awk -v OFS='\t' -v binary="$name" -v executable="$executable" -v directory="$directory" '
                { module = $0; sub(/::.*/, "", module) }
                module != last { if (last) print binary "-" last, executable, directory, tests; last = module; tests = $0; next }
                { tests = tests " " $0 }
                END { if (last) print binary "-" last, executable, directory, tests }'
    done >"$work/modules"
    [ -s "$work/modules" ] || die "the tests name none of theirs"
    : >"$work/tests"
    if [ -n "$select" ]; then
        sed 's/#.*//' "$select" | while read -r name own; do
            [ -z "$name" ] || choose "$name" "$own" >>"$work/tests" || die "$select: no tests $name $own"
        done || exit "$EXIT_LAB"
    elif ((${#only[@]})); then
        for name in "${only[@]}"; do choose "$name" "" >>"$work/tests" || die "there are no tests $name"; done
    else
        cp "$work/modules" "$work/tests"
    fi
    # Apply the filters of the command line.
    if [ -n "$filters" ]; then
        mv "$work/tests" "$work/modules"
        while IFS=$'\t' read -r name _; do choose "$name" "$filters" || true; done <"$work/modules" >"$work/tests"
    fi
}

# Prints the line of a module, with the tests whose names contain one of the filters.
choose() { # MODULE FILTERS
    awk -F '\t' -v OFS='\t' -v name="$1" -v filters="$2" '
        $1 != name { next }
        {
            count = split(filters, filter, " ")
            tests = ""
            for (i = 1; i <= split($4, test, " "); i++) {
                wanted = !count
                for (j = 1; j <= count; j++) if (index(test[i], filter[j])) wanted = 1
                if (wanted) tests = tests (tests ? " " : "") test[i]
            }
            if (tests) { print $1, $2, $3, tests; found = 1 }
        }
        END { exit !found }' "$work/modules"
}
