# Results of test runs, as lines:
#   passed|failed|unstable|skipped SECONDS BINARY TEST      unstable: failed, and passed in the second run
#   SKIP TEST: REASON                                       printed by a test that cannot run, entirely or in part
# and, from parts with their own reports, "N passed, N failed, N skipped", "test result: ...", "failed: ...", "unstable: ...".
# shellcheck shell=bash

# Converts a JUnit report of cargo-nextest to such lines. With a second report, of the repeated failures, tests that passed
# there are unstable.
results() { # REPORT [AGAIN]
    awk '
        function attribute(name,    at) {
            at = index($0, " " name "=\"")
            if (!at) return ""
            at = substr($0, at + length(name) + 3)
            return substr(at, 1, index(at, "\"") - 1)
        }
        function close_test() {
            if (test == "") return
            if (again) { if (!bad) mended[test] = 1 } else { order[++count] = test; took[count] = seconds; how[count] = bad ? "failed" : skips ? "skipped" : "passed" }
            test = ""
        }
        FNR == 1 && NR != 1 { close_test() }
        # The second report is the first argument.
        FNR == 1 { again = (ARGC > 2 && FILENAME == ARGV[1]) }
        /<testcase / { close_test(); test = attribute("classname") " " attribute("name"); seconds = attribute("time"); bad = skips = 0 }
        /<(failure|error)[ >]/ { bad = 1 }
        !again && match($0, /(^|<system-(err|out)>)SKIP [A-Za-z0-9_:]+: /) {
            line = substr($0, index($0, "SKIP "))
            sub(/<\/system-.*/, "", line)
            reasons[line] = skips = 1
        }
        END {
            close_test()
            for (i = 1; i <= count; i++)
                print (how[i] == "failed" && order[i] in mended ? "unstable" : how[i]), took[i], order[i]
            for (line in reasons) print line
        }' "${@:2}" "$1"
}

# Converts the failed tests in such lines to a filter expression of nextest.
failures_as_filter() {
    awk '$1 == "failed" { printf "%s(binary_id(=%s) & test(=%s))", separator, $3, $4; separator = " | " }'
}

# Prints the result lines of rustdoc, and a failure if its exit status is not 0.
documentation_results() { # STATUS OUTPUT
    grep '^test result: ' "$2"
    [ "$1" = 0 ] || echo "failed: examples in the documentation (status $1)"
}

# Prints the slowest tests.
slowest() { # COUNT LOG
    echo "the $1 slowest tests, in seconds:"
    grep -E '^(passed|failed|unstable|skipped) ' "$2" | sort -k2,2 -rn | head -n "$1" | awk '{ printf "%8.1f  %s %s\n", $2, $3, $4 }'
}

# Prints failed, skipped and unstable tests, and the closing line. Fails if any test failed.
sum() { # LOG
    awk '$1 == "failed" || $1 == "unstable" { print $1 ": " $3 " " $4 }' "$1" | sort
    grep -E '^(SKIP |failed: |unstable: )' "$1" | sort -u
    awk '
        $1 == "passed" || $1 == "unstable" { passed++ }
        $1 == "failed" { failed++ }
        $1 == "skipped" { skipped++ }
        $1 == "unstable" || /^unstable: / { unstable++ }
        /^failed: / { named++ }
        # Totals of parts with their own summary.
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $1; failed += $3; skipped += $5 }
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i == "passed;") passed += $(i - 1)
                if ($i == "failed;") failed += $(i - 1)
            }
        }
        END {
            if (unstable > 2) { print "failed: " unstable " tests are unstable, more than two"; named++ }
            if (named && !failed) failed = 1
            printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
            exit failed > 0
        }' "$1"
}
