#!/bin/sh
# Runs the tests that depend most on time many times, to find those that luck can fail.
# Usage: [BUSY=1] [LANES='live pages programs'] scripts/repeat-tests.sh [TIMES]
#
# These are all tests with a browser, in the lanes `live` and `pages`, and beside them the Rust test
# `programs` with sockets, because most of them wait. LANES names the lanes to run. A failure stops nothing.
# At the end, a line for each test has its runs and its failures; after an interrupt, those of the rounds so
# far. With BUSY=1 a busy loop on each processor runs beside them.
set -u
cd "$(dirname "$0")/.."
. scripts/busy.sh

times=${1:-20}
# Seconds for one program, so that one that hangs does not stop the others.
PROGRAM_TIMEOUT=${PROGRAM_TIMEOUT:-900}

# The Rust test programs that open sockets, as CRATE PROGRAM: all of these crates, except those that
# only read files, and the one of `protocol`.
rust() {
    for crate in baselines headwater http streamgauge viewer; do
        for program in "crates/$crate"/tests/*.rs "crates/$crate"/tests/*/main.rs; do
            [ ! -e "$program" ] || echo "$crate $(basename "${program%/main.rs}" .rs)"
        done
    done | grep -vx -e 'headwater config' -e 'streamgauge report' -e 'viewer parsers'
    echo "protocol rtmp_foreign"
}

scripts/install.sh test || exit 1
scripts/web.sh || exit 1
scripts/make-media.sh || exit 1
scripts/aiortc.sh || exit 1
scripts/nats.sh || exit 1
scripts/moto.sh || exit 1
scripts/openapi.sh || exit 1
scripts/otlp.sh || exit 1
export NO_COLOR=1 FORCE_COLOR=0 CARGO_TERM_COLOR=never
# The same build as that of scripts/test.sh, which runs clippy for rustc.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
cargo test --workspace --all-targets --no-run || exit 1
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export HEADWATER_BIN="$target/debug/headwater"

work=$(mktemp -d)
trap 'busy_end; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# run LANE NAME COMMAND…: runs one program, and notes the result of each test. A program that failed
# without a failed test counts as a test of its own.
run() {
    own=$work/$1 name=$2
    shift 2
    timeout -k 10 "$PROGRAM_TIMEOUT" "$@" >"$own.log" 2>&1 </dev/null &
    running=$!
    wait "$running"
    awk -v name="$name" -v status=$? '
        # cargo: test NAME ... ok      node: ✔ NAME (12.3ms), and failed tests once more at the end
        /^test .* \.\.\. (ok|FAILED)$/ { note($2, $NF != "ok") }
        /^ *✖ failing tests:/ { exit }
        /^ *(✔|✖) .* \([0-9.]+ms\)$/ {
            bad = $1 == "✖"
            sub(/^ *[^ ]+ /, ""); sub(/ \([0-9.]+ms\)$/, "")
            note($0, bad)
        }
        function note(test, bad) { print bad "\t" name ": " test; failed += bad }
        END { if (status != 0 && !failed) print 1 "\t" name ": ended with " status }' \
        "$own.log" >"$own.noted"
    cat "$own.noted" >>"$own.results"
    if grep -q '^1' "$own.noted"; then
        printf '== %s\n' "$name"
        cat "$own.log"
    fi
}

# live, pages: all tests with a browser, as package.json shares them out.
live() { browsers live e2e:young e2e:live; }
pages() { browsers pages e2e:pages; }

# browsers LANE SCRIPT…: the test files of these npm scripts, one after the other.
browsers() {
    own_lane=$1
    shift
    for script in "$@"; do
        npm --prefix web pkg get "scripts.$script" | grep -o 'e2e/[a-z-]*\.test\.mjs'
    done >"$work/$own_lane.list"
    while read -r file; do
        run "$own_lane" "$(basename "$file")" \
            node --test --test-concurrency=1 --test-reporter=spec "web/$file"
    done <"$work/$own_lane.list"
}

# programs: the Rust test programs. They yield to the browsers.
programs() {
    rust >"$work/list"
    while read -r crate program; do
        run programs "$crate $program" nice -n 5 cargo test --quiet \
            --manifest-path "crates/$crate/Cargo.toml" --test "$program" -- --format=pretty
    done <"$work/list"
}

lanes=
interrupted=
# The words are process ids, so splitting is intended.
# shellcheck disable=SC2086
trap 'interrupted=1; kill $lanes 2>/dev/null' INT TERM
busy_begin
for lane in ${LANES:-live pages programs}; do
    [ -z "$interrupted" ] || break
    {
        running=
        trap '[ -z "$running" ] || kill "$running" 2>/dev/null; exit 130' TERM
        for round in $(seq "$times"); do
            $lane
            printf '=== %s: %s of %s, %s\n' "$lane" "$round" "$times" "$(date +%T)"
        done
    } &
    lanes="$lanes $!"
done
# shellcheck disable=SC2086
[ -n "$interrupted" ] || wait $lanes
# A signal ends `wait` at once. The lanes end a moment later, also one that began after the signal.
# shellcheck disable=SC2086
[ -z "$interrupted" ] || { kill $lanes 2>/dev/null; wait $lanes; }
busy_end
cat "$work"/*.results >"$work/results"

printf '\n== runs and failures of each test, most failures first\n'
awk -F '\t' '
    { runs[$2]++; failures[$2] += $1; bad += $1 }
    END {
        for (test in runs) printf "%5d %5d  %s\n", runs[test], failures[test], test | "sort -k2,2nr -k3"
        close("sort -k2,2nr -k3")
        print NR " runs, " bad + 0 " failures"
        exit bad > 0
    }' "$work/results" && [ -z "$interrupted" ]
