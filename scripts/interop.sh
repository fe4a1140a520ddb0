#!/bin/sh
# Lets other implementations of WebRTC publish to the origin and play from it: pion (Go), and GStreamer's
# webrtcbin. Lets the origin serve files of other servers of objects, s3s-fs and Azurite. Lets streamgauge measure other
# media servers: Node-Media-Server, GStreamer's hlssink2, MediaMTX where it can be built, and SRS where it is found.
# Lets a newer pebble tell the origin when to renew its certificate.
# Usage: scripts/interop.sh
#
# The tests are in crates/headwater/tests/interop, tests/acme and tests/store, and in crates/streamgauge/tests/rivals.
# pion, pebble and MediaMTX come from Go's module proxy, in the versions of go.sum and lab/peers/mediamtx/Makefile, s3s-fs
# from crates.io, Azurite from npm.
# PEER_BINS="srs=/path/to/srs" names programs as streamgauge's --peer-bin does.
# Each test has a line, and the last line has their sum.
set -u
cd "$(dirname "$0")/.."
. scripts/ignored-tests.sh

# Seconds; the builds are not included.
INTEROP_TIMEOUT=${INTEROP_TIMEOUT:-600}

scripts/install.sh interop || exit 1
[ -d web/dist ] || scripts/web.sh || exit 1
scripts/make-media.sh || exit 1
mkdir -p target/interop
# No other version of Go is fetched, and a checkout without git will do.
program=$PWD/target/interop/pion
(cd crates/headwater/tests/interop/pion && GOTOOLCHAIN=local go build -buildvcs=false -o "$program" .) ||
    { echo "0 passed, 1 failed"; exit 1; }

scripts/s3s.sh && scripts/azurite.sh && scripts/pebble.sh || { echo "0 passed, 1 failed"; exit 1; }

export NO_COLOR=1 CARGO_TERM_COLOR=never
# The same build as that of scripts/test.sh, which runs clippy for rustc.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
cargo run -p streamgauge -- peers --install node-media-server gstreamer-hls || { echo "0 passed, 1 failed"; exit 1; }
# Debian's Go is too old for it: then its test says that it is left out.
cargo run -p streamgauge -- peers --install mediamtx
cargo test -p headwater -p streamgauge --test interop --test acme --test store --test rivals --no-run ||
    { echo "0 passed, 1 failed"; exit 1; }

# Most of a test's time is that of its film, so two of them run at once.
ignored_tests "$INTEROP_TIMEOUT" -p headwater -p streamgauge --test interop --test acme --test store --test rivals -- \
    --ignored --test-threads 2
