#!/bin/sh
# Builds the origin, and starts a cluster on this machine: three NATS servers, two origins and three edges, with a demo
# stream. Usage: scripts/cluster.sh [--ports FIRST]
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh cluster
scripts/web.sh
scripts/nats.sh
cargo build --release -p headwater

target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
exec python3 scripts/cluster.py --headwater "$target/release/headwater" "$@"
