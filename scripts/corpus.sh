#!/bin/sh
# Runs the tests with real and broken media, which are not part of the repository. Usage:
# scripts/corpus.sh
#
# The media are in the folder HEADWATER_MEDIA, or in ../shared/media. If there are none, no test
# runs, which is not a failure. The tests are those of `make test`'s programs whose names begin with
# `corpus_`; `make test` ignores them. The last line has their sum.
set -u
cd "$(dirname "$0")/.."

media=${HEADWATER_MEDIA:-../shared/media}
# Seconds; the build is not included.
CORPUS_TIMEOUT=${CORPUS_TIMEOUT:-600}

if [ ! -d "$media" ]; then
    echo "no corpus: there is no folder $media (HEADWATER_MEDIA names another)"
    echo "0 passed, 0 failed"
    exit 0
fi
# Test programs run in their crates' folders.
HEADWATER_MEDIA=$(cd "$media" && pwd)
export HEADWATER_MEDIA NO_COLOR=1 CARGO_TERM_COLOR=never
scripts/install.sh test || exit 1
scripts/make-media.sh || exit 1
[ -d web/dist ] || scripts/web.sh || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The same build as that of scripts/test.sh, which runs clippy for rustc.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
cargo test --workspace --all-targets --no-run || { echo "0 passed, 1 failed"; exit 1; }
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export HEADWATER_BIN="$target/debug/headwater"

{
    timeout -k 10 "$CORPUS_TIMEOUT" cargo test --workspace --lib --bins --tests --no-fail-fast -- \
        --ignored corpus_ 2>&1
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
