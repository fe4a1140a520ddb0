#!/bin/sh
# Runs the tests with real and broken media, which are not part of the repository. Usage:
# scripts/corpus.sh
#
# The media are in the folder HEADWATER_MEDIA, or in ../shared/media. If there are none, no test
# runs, which is not a failure. The tests are those of `make test`'s programs whose names begin with
# `corpus_`; `make test` ignores them. The last line has their sum.
set -u
cd "$(dirname "$0")/.."
. scripts/ignored-tests.sh

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

# The same build as that of scripts/test.sh, which runs clippy for rustc.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
cargo test --workspace --all-targets --no-run || { echo "0 passed, 1 failed"; exit 1; }
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export HEADWATER_BIN="$target/debug/headwater"

ignored_tests "$CORPUS_TIMEOUT" --workspace --lib --bins --tests --no-fail-fast -- --ignored corpus_
