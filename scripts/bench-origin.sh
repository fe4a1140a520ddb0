#!/bin/sh
# Measures the origin from outside; server and load have a core each (benches/origin.rs).
#
#   scripts/bench-origin.sh [RUNS] [SECONDS]
#
# Raw figures of each part go to lab/runs/DATE-origin/.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
runs=${1:-5}
seconds=${2:-30}
out=lab/runs/$(date -u +%Y-%m-%d)-origin
mkdir -p "$out"
machine > "$out/machine.txt"
: > "$out/figures.txt"
for run in $(seq "$runs"); do
    echo "run $run" | tee -a "$out/figures.txt"
    cargo bench -q -p headwater --bench origin -- --seconds "$seconds" --server-core 0 --load-core 1 \
        --csv "$PWD/$out/parts-$run.csv" | tee -a "$out/figures.txt"
done
