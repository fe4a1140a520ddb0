#!/bin/sh
# Walks STEPS (1000000) steps of a simulated cluster, from SEED. Without one, the walk is another each time; with the
# one that a walk of the same commit has printed, it is that walk again. LOG=1 prints what the nodes log.
set -eu
cd "$(dirname "$0")/.."
scripts/install.sh run
scripts/web.sh
SIMULATION_STEPS=${STEPS:-1000000}
SIMULATION_SEED=${SEED:-$(date +%s)}
export SIMULATION_STEPS SIMULATION_SEED
[ "${LOG:-}" = 1 ] && export SIMULATION_LOG=1
mkdir -p target
cc -shared -fPIC -O1 -Wall -Wextra -o target/fixed-random.so scripts/fixed-random.c
echo "SEED=$SIMULATION_SEED"
cargo test -p headwater --lib cluster::simulation \
    --config "target.'cfg(unix)'.runner=['env','LD_PRELOAD=$PWD/target/fixed-random.so']" -- --nocapture
