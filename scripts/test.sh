#!/bin/sh
# Checks everything that must hold before a change is merged.
# Usage: [BUSY=1] scripts/test.sh [check]
#
# With `check`, only what takes a minute after a build: format, lints, types, the tests inside the
# libraries, and their quick integration tests that start no server, player or browser.
#
# With BUSY=1, a busy loop on each processor runs beside the tests. The build has them to itself.
#
# Every step runs, even after a failed one. The last line sums the runners' own summaries; before it
# is the output of each failed test. A failed step that does not count tests (format, lints, types,
# a build), and a runner that dies before it has counted, count as one failure each.
#
# The web pages are built first, because the origin embeds them. Then every program is built; media are made and
# other servers installed meanwhile. Then all tests run. The media that tests read are generated; none are taken from
# outside the repository.
set -u
cd "$(dirname "$0")/.."
. scripts/busy.sh

# Time limits in seconds, without the build, so that a runner that hangs does not stop the others.
# They are several times what a quiet machine needs, because the cores may be shared.
TEST_TIMEOUT=${TEST_TIMEOUT:-1800}
E2E_TIMEOUT=${E2E_TIMEOUT:-900}

what=${1:-test}
scripts/install.sh "$what" || exit 1

# Colour codes would disturb the sum.
export NO_COLOR=1 FORCE_COLOR=0 CARGO_TERM_COLOR=never
# Property tests get the same random input each time, so that a rare input does not fail a change that
# has nothing to do with it. For other input, set another number:  PROPTEST_RNG_SEED=7 make test
# `make fuzz` varies its input by itself.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
# Incremental data and debug information are useless to a build that runs once, and take much of its
# time and most of its disk. A panic shows its line without them.
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none

work=$(mktemp -d)
beside=
trap 'busy_end; rm -rf "$work"' EXIT
# The processes need a moment to end before their files are removed.
trap 'trap "" HUP INT TERM; end $(below $$); sleep 1; exit 130' HUP INT TERM

# below PROCESS: the processes that it has started, and those that they have.
below() {
    for below_child in $(pgrep -P "$1"); do
        # What the call sets is set here, too, so it comes last.
        echo "$below_child"
        below "$below_child"
    done
}
# end PROCESS…: ends them. Those in groups of their own do not get the signal of a terminal.
end() { kill "$@" 2>/dev/null; }

# step NAME COMMAND…: runs a command, shows and keeps its output, and records its status and time.
step() {
    step_name=$1
    shift
    printf '\n== %s\n' "$step_name"
    step_began=$(date +%s)
    # The shell handles a signal only when a foreground command has ended, but it interrupts `wait` at once. A command in
    # the background would read /dev/null, so its input is passed as 3.
    exec 3<&0
    { "$@" 2>&1; echo $? >"$work/$step_name.status"; } <&3 3<&- | tee "$work/$step_name.log" 3<&- &
    wait $!
    exec 3<&-
    echo $(($(date +%s) - step_began)) >"$work/$step_name.seconds"
}

# later NAME…: shows the output of steps that ran in the background.
later() {
    for later_name in "$@"; do
        printf '\n== %s\n' "$later_name"
        cat "$work/$later_name.log"
    done
}

web() { (cd web && npm run --silent "$@"); }

# --- The steps ------------------------------------------------------------------------------------

step web-build scripts/web.sh

# These wait for the network and the disk much of the time, so they run beside the build.
{
    step media scripts/make-media.sh
    [ "$what" = check ] || step aiortc scripts/aiortc.sh
    [ "$what" = check ] || step nats scripts/nats.sh
    [ "$what" = check ] || step moto scripts/moto.sh
    [ "$what" = check ] || step openapi scripts/openapi.sh
    [ "$what" = check ] || step otlp scripts/otlp.sh
    [ "$what" = check ] || step deploy-tools scripts/check-deploy.sh --install
    step web-check web check
    step web-test web test
} >/dev/null &
beside=$!

step format cargo fmt --all --check
step modules scripts/module-cycles.py crates/*

# The lints come from the build of the tests: clippy-driver is the compiler with more lints, and one
# build takes half the time of two. It lints only the workspace's crates. cargo repeats earlier
# messages.
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
later media
[ "$what" = check ] || later aiortc nats moto openapi otlp deploy-tools
later web-check web-test
[ "$what" = check ] || step deploy timeout 120 scripts/check-deploy.sh
busy_begin

if [ "$what" = check ]; then
    step unit-test cargo test --workspace --lib --bins --no-fail-fast
    # codec_records starts none of these either. It is left out because it lets ffprobe read every clip,
    # and so takes more processor time than any program below.
    step model-test cargo test --workspace --no-fail-fast --test derived --test invariants \
        --test odd_publishers --test renditions --test slow_frames --test memory --test cmaf \
        --test flv_hostile --test mp4_hostile --test mp4_shapes --test dash --test hls \
        --test rtmp_sessions --test library --test parsers --test config --test report
    step doc-test cargo test --workspace --doc --no-fail-fast
    scripts/sum-tests.py "$work" web-build media web-check web-test format modules test-build clippy unit-test \
        model-test doc-test
    exit
fi

# Most tests wait for players, so more tests run at once than there are cores: this many in each test
# program.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-3}
export TEST_TIMES=$work/times
e2e() { timeout -k 10 "$E2E_TIMEOUT" npm --prefix web run --silent "e2e:$1"; }
# Pages show pictures in real time, so they come first, and beside them only tests that leave them most of the machine.
# These yield to the pages, but they always run on: at idle priority they would stand still on a machine that is never
# idle. In 600 s, browsers and pages take 310 s of processor time, and these tests less. Beside two lanes of them, one of
# eight pages was not run often enough, and left out frames. Two pages left out frames beside one lane at nice
# level 5 as well, because it takes a quarter of a busy processor. So its priority is lower, but not beside busy loops,
# where it would hardly run. The heavy ones come last, and then those that have not run beside the pages.
yields=12
[ "${BUSY:-0}" = 1 ] && yields=5
mkdir "$work/claims"
{
    step cargo-light nice -n $yields scripts/run-tests.py 1 "$TEST_TIMEOUT" light "$work/claims" <"$built"
    step doc-test nice -n $yields timeout -k 10 "$TEST_TIMEOUT" cargo test --workspace --doc --no-fail-fast
} >/dev/null &
beside=$!
step e2e-young e2e young
step e2e-live e2e live
step e2e-pages e2e pages
step cargo-rest scripts/run-tests.py 4 "$TEST_TIMEOUT" all "$work/claims" <"$built"
# The words are process ids, so splitting is intended.
# shellcheck disable=SC2086
wait $beside
later cargo-light doc-test

# --- The sum --------------------------------------------------------------------------------------

scripts/sum-tests.py "$work" web-build media aiortc nats moto openapi otlp deploy-tools web-check web-test format modules test-build clippy deploy cargo-light \
    doc-test e2e-young e2e-live e2e-pages cargo-rest
