#!/bin/sh
# Everything that must hold before a change is merged. Usage: scripts/test.sh [check]
#
# With `check`, only what takes a minute after a build: format, lints, types, the tests that stand in the
# libraries, and those beside them that start no server, player or browser.
#
# Every step runs, whatever became of those before it; the last line sums the runners' own
# summaries, and before them stands what each failed test printed. A step that does not count tests
# (format, lints, types, a build), and a runner that dies before it has counted, is one failure in that
# sum.
#
# The web pages are built first since the origin embeds them, then every program, then all run. The
# media are made that the tests read; none is looked for outside the repository.
set -u
cd "$(dirname "$0")/.."

# A runner that hangs must not take the others with it. Seconds; the build is not included. It is several
# times what a quiet machine needs, for one whose cores are shared.
TEST_TIMEOUT=${TEST_TIMEOUT:-1800}
E2E_TIMEOUT=${E2E_TIMEOUT:-1200}

what=${1:-test}
scripts/install.sh "$what" || exit 1

# Colour codes would be in the way of the sum.
export NO_COLOR=1 FORCE_COLOR=0 CARGO_TERM_COLOR=never
# Of no use to a build that runs once, and a good part of its time and most of its disk: a panic says
# its line without.
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none

work=$(mktemp -d)
beside=
trap 'rm -rf "$work"' EXIT
trap '[ -n "$beside" ] && kill $beside 2>/dev/null; exit 130' INT TERM

# step NAME COMMAND…: run it with its output shown and kept, and remember how it ended, and when.
step() {
    step_name=$1
    shift
    printf '\n== %s\n' "$step_name"
    step_began=$(date +%s)
    { "$@" 2>&1; echo $? >"$work/$step_name.status"; } | tee "$work/$step_name.log"
    echo $(($(date +%s) - step_began)) >"$work/$step_name.seconds"
}

# later NAME…: the output of steps that ran beside others.
later() {
    for later_name in "$@"; do
        printf '\n== %s\n' "$later_name"
        cat "$work/$later_name.log"
    done
}

web() { (cd web && npm run --silent "$@"); }

# --- The steps ------------------------------------------------------------------------------------

step web-build scripts/web.sh
step media scripts/make-media.sh

# Types, lints and unit tests of the pages take seconds.
{
    step web-check web check
    step web-test web test
} >/dev/null &
beside=$!

step format cargo fmt --all --check
step modules scripts/module-cycles.py crates/*

# The lints come from the build of the tests: clippy-driver is the compiler with more of them, and one
# build takes half the time of two. Those of the crates alone; cargo repeats what it has said before.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
built=$work/built.json
build() {
    cargo test --workspace --all-targets --no-run --message-format=json-render-diagnostics >"$built"
}
step test-build build
no_warnings() { ! grep '^warning' "$work/test-build.log"; }
step clippy no_warnings
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export HEADWATER_BIN="$target/debug/headwater"

wait "$beside"
later web-check web-test

if [ "$what" = check ]; then
    step unit-test cargo test --workspace --lib --bins --no-fail-fast
    step model-test cargo test --workspace --no-fail-fast --test derived --test invariants \
        --test odd_publishers --test dash --test hls --test rtmp_sessions
    scripts/sum-tests.py "$work" web-build media web-check web-test format modules test-build clippy unit-test model-test
    exit
fi

# Most tests wait for players that take their time, so more run at once than there are cores: so many
# of each of three programs.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-3}
export TEST_TIMES=$work/times
e2e() { timeout -k 10 "$E2E_TIMEOUT" npm --prefix web run --silent "e2e:$1"; }
# How closely a page follows live is measured in time: nothing runs beside it, nor beside the ladder's
# encoders, which must keep up with it.
step e2e-live e2e live
# Crates that talk to nobody: their tests read files, and have files read. They yield to the others, which
# wait much of their time and must not be kept waiting. They always go on, though: on a machine that is
# never idle what asks for idle time alone would stand still.
files="live media vod"
{
    step cargo-files nice -n 5 scripts/run-tests.py 1 "$TEST_TIMEOUT" $files <"$built"
    step doc-test nice -n 5 timeout -k 10 "$TEST_TIMEOUT" cargo test --workspace --doc --no-fail-fast
} >/dev/null &
beside=$!
step e2e-titles e2e titles
step cargo-test scripts/run-tests.py 3 "$TEST_TIMEOUT" --but $files <"$built"
wait
later cargo-files doc-test

# --- The sum --------------------------------------------------------------------------------------

scripts/sum-tests.py "$work" web-build media web-check web-test format modules test-build clippy cargo-files doc-test \
    e2e-live e2e-titles cargo-test
