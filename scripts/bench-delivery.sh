#!/bin/sh
# Low-latency HLS and DASH straight from the origin and through caches, beside push: lab/scenarios/delivery.toml,
# and its report. Origin and cache share core 0, the load has core 1. What caches keep is in memory.
#
#   scripts/bench-delivery.sh -o DIR [OPTIONS of streamgauge run]
#
# STREAMGAUGE names a program that is built already, with headwater beside it. Takes 13 minutes, with
# --repeat 1 a third of that.
set -eu
cd "$(dirname "$0")/.."
test "${1:-}" = -o && test -n "${2:-}" || { echo "usage: scripts/bench-delivery.sh -o DIR [OPTIONS]" >&2; exit 2; }
out=$2
shift 2
if [ -z "${STREAMGAUGE:-}" ]; then
    cargo build -q --release -p headwater -p streamgauge
fi
streamgauge=${STREAMGAUGE:-${CARGO_TARGET_DIR:-target}/release/streamgauge}
ulimit -n "$(ulimit -H -n)"
memory=$(mktemp -d /dev/shm/delivery-XXXXXX)
trap 'rm -rf "$memory"' EXIT
trap 'exit 1' INT TERM
# Where streamgauge keeps media and the folders of servers.
CARGO_TARGET_DIR=$memory "$streamgauge" run delivery --server-cpus 0 --load-cpus 1 -o "$out" "$@" || test $? -eq 3
"$streamgauge" report "$out"
sed -n '/^## /,/^### Commands/p' "$out/report/report.md"
