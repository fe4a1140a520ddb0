#!/bin/sh
# Everything that must hold before a change is merged. Usage: scripts/test.sh
#
# Every step runs, whatever became of those before it; the last line sums the runners' own
# summaries. A step that does not count tests (format, lints, types, a build), and a runner that
# dies before it has counted, is one failure in that sum.
#
# The web pages are built first since the origin embeds them. The browser tests use the program
# that `cargo test` has just built.
set -u
cd "$(dirname "$0")/.."

# A runner that hangs must not take the others with it. Seconds; the build is not included.
TEST_TIMEOUT=${TEST_TIMEOUT:-720}
E2E_TIMEOUT=${E2E_TIMEOUT:-400}

scripts/install.sh test || exit 1

# Colour codes would be in the way of the sum.
export NO_COLOR=1 FORCE_COLOR=0 CARGO_TERM_COLOR=never
# Of no use to a build that runs once, and a good part of its time and most of its disk; lines are
# enough for a backtrace.
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only

work=$(mktemp -d)
web_pid=
trap 'rm -rf "$work"' EXIT
trap '[ -n "$web_pid" ] && kill "$web_pid" 2>/dev/null; exit 130' INT TERM

# step NAME COMMAND…: run it with its output shown and kept, and remember how it ended, and when.
step() {
    step_name=$1
    shift
    printf '\n== %s\n' "$step_name"
    step_began=$(date +%s)
    { "$@" 2>&1; echo $? >"$work/$step_name.status"; } | tee "$work/$step_name.log"
    echo $(($(date +%s) - step_began)) >"$work/$step_name.seconds"
}

web() { (cd web && npm run --silent "$@"); }

# total NAME: "passed failed" as the runner's own summary lines in that step's log say. Nothing
# if it printed none.
total() {
    sed 's/\x1b\[[0-9;]*m//g' "$work/$1.log" | awk '
        # cargo:       test result: ok. 12 passed; 0 failed; 1 ignored; …
        /^test result: / { passed += $4; failed += $6; seen = 1 }
        # vitest:      Tests  1 failed | 12 passed (13)
        $1 == "Tests" && /\([0-9]+\)$/ {
            for (i = 2; i < NF; i++) {
                if ($(i + 1) == "passed") passed += $i
                if ($(i + 1) == "failed") failed += $i
            }
            seen = 1
        }
        # node --test: # pass 12   # fail 0   # cancelled 0
        ($1 == "#" || $1 == "ℹ") && NF == 3 && $3 ~ /^[0-9]+$/ {
            if ($2 == "pass") { passed += $3; seen = 1 }
            if ($2 == "fail" || $2 == "cancelled") failed += $3
        }
        END { if (seen) print passed + 0, failed + 0 }'
}

# --- The steps ------------------------------------------------------------------------------------

step web-build scripts/web.sh

# Types, lints and unit tests of the pages take seconds: they run beside the compiler, and their
# output waits its turn.
for name in web-check web-test; do
    web "${name#web-}" >"$work/$name.log" 2>&1
    echo $? >"$work/$name.status"
done &
web_pid=$!

step format cargo fmt --all --check
step clippy cargo clippy --workspace --all-targets -- -D warnings

wait "$web_pid"
web_pid=
for name in web-check web-test; do
    printf '\n== %s\n' "$name"
    cat "$work/$name.log"
done

step test-build cargo test --workspace --no-run
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export HEADWATER_BIN="$target/debug/headwater"

# Pages of titles wait for downloads more than for the processor: they run beside the others, too.
{
    timeout -k 10 "$E2E_TIMEOUT" npm --prefix web run --silent e2e:titles >"$work/e2e-titles.log" 2>&1
    echo $? >"$work/e2e-titles.status"
} &
web_pid=$!

# Most tests wait for players that take their time, so more run at once than there are cores: so many
# of each of two programs.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
step cargo-test timeout -k 10 "$TEST_TIMEOUT" scripts/run-tests.py

wait "$web_pid"
web_pid=
printf '\n== e2e-titles\n'
cat "$work/e2e-titles.log"

step e2e-live timeout -k 10 "$E2E_TIMEOUT" npm --prefix web run --silent e2e:live

# --- The sum --------------------------------------------------------------------------------------

all_passed=0
all_failed=0
echo
echo "== summary"
for name in web-build format clippy web-check web-test test-build cargo-test e2e-titles e2e-live; do
    status=$(cat "$work/$name.status" 2>/dev/null || echo "did not run")
    counts=
    case $name in web-test | cargo-test | e2e-*) counts=$(total "$name") ;; esac
    passed=${counts% *}
    failed=${counts#* }
    # Failed without a test to blame: the step itself is the failure.
    [ "$status" = 0 ] || [ "${failed:-0}" != 0 ] || failed=1
    all_passed=$((all_passed + ${passed:-0}))
    all_failed=$((all_failed + ${failed:-0}))
    case $status in
    0) verdict=ok ;;
    124 | 137) verdict="FAILED (out of time)" ;;
    *) verdict="FAILED (status $status)" ;;
    esac
    took=$(cat "$work/$name.seconds" 2>/dev/null)
    printf '%-10s  %s%s%s\n' "$name" "$verdict" "${counts:+, $passed passed, ${failed} failed}" \
        "${took:+ (${took} s)}"
done
echo "$all_passed passed, $all_failed failed"
[ "$all_failed" = 0 ]
