#!/bin/sh
# Installs the servers that scenarios compare: all of them, or the named ones.
# Usage: scripts/peers.sh [NAME...]
# After that, `streamgauge peers` shows which servers are installed.
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh run
scripts/web.sh
cargo build --release -p streamgauge

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
exec "$target/release/streamgauge" peers --install "$@"
