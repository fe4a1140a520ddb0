#!/bin/sh
# Measures low-latency HLS and DASH from the origin directly and through caches, beside push:
# lab/scenarios/delivery.toml, and its report. Origin and cache share core 0, the load has core 1.
# Caches keep their files in memory.
#
#   scripts/bench-delivery.sh -o DIR [OPTIONS of streamgauge run]
#
# STREAMGAUGE names a program that is already built, with headwater in the same folder. Takes 13
# minutes, or a third of that with --repeat 1.
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
# streamgauge keeps media and the servers' folders in this memory.
CARGO_TARGET_DIR=$memory "$streamgauge" run delivery --server-cpus 0 --load-cpus 1 -o "$out" "$@" || test $? -eq 3
"$streamgauge" report "$out"
sed -n '/^## /,/^### Commands/p' "$out/report/report.md"
