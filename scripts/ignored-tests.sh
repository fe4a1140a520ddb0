# Runs tests that `make test` leaves out, for scripts that read this file (`.`). It is not run by itself.

# ignored_tests SECONDS WORD…: runs `cargo test WORD…`, for SECONDS at most. The last line has the sum of all its test
# programs. The status is 1 if a test failed, or if the run did not end in order.
ignored_tests() {
    limit=$1
    shift
    log=$(mktemp)
    {
        timeout -k 10 "$limit" cargo test "$@" 2>&1
        echo "status $?"
    } | tee "$log"
    awk '
        /^test result: / { passed += $4; failed += $6 }
        /^status / { status = $2 }
        END {
            # Failed without a test to blame: it did not build, or took too long.
            if (status != 0 && failed == 0) failed = 1
            print passed + 0 " passed, " failed + 0 " failed"
            exit failed != 0
        }' "$log"
    set -- $?
    rm -f "$log"
    return "$1"
}
