# Sums the results of several test binaries; "expected" is their number.
# Reads the lines of guest/suite around those of libtest. Fails if any test failed.

/^lab-suite: begin / { binary = $3; said = failures = 0; lines = names = "" }

/^test .* \.\.\. FAILED$/ { lines = lines "failed: " binary ": " $2 "\n"; names = names " " $2 }

/^test result: / {
    said = 1
    passes = 0
    for (i = 2; i <= NF; i++) {
        if ($i == "passed;") { passed += $(i - 1); passes = $(i - 1) }
        if ($i == "failed;") { failed += $(i - 1); failures += $(i - 1) }
        if ($i == "ignored;") skipped += $(i - 1)
    }
}

# Earlier failures are repeated with the remaining modules.
/^lab-suite: unstable / {
    status[$3] = $4
    if (names) why = why " failed before:" names ";"
    lines = names = ""
    passed -= passes
    failed -= failures
    said = passes = failures = 0
}

/^lab-suite: why: / { sub(/^lab-suite: why: /, ""); why = why " " $0 ";" }

# Without a result line the binary has no test harness, or died.
/^lab-suite: end / {
    ended++
    list = list lines
    lines = names = ""
    passes = 0
    if ($NF == 0 && !said) passed++
    if ($NF == 0 && $3 in status) list = list "unstable: " $3 " ended with status " status[$3] " at first" why "\n"
    if ($NF != 0 && !failures) { failed++; list = list "failed: " $3 " ended with status " $NF "\n" }
    # The next module has its own result.
    why = ""
}

END {
    if (ended < expected) {
        failed += expected - ended
        list = list "failed: " expected - ended " parts did not finish" why "\n"
    }
    printf "%s", list
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
}
