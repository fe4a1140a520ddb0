#!/bin/sh
# Walks STEPS (1000000) steps of a simulated cluster, from SEED. Without one, the walk is another each time.
set -eu
cd "$(dirname "$0")/.."
scripts/install.sh run
scripts/web.sh
SIMULATION_STEPS=${STEPS:-1000000}
SIMULATION_SEED=${SEED:-$(date +%s)}
export SIMULATION_STEPS SIMULATION_SEED
echo "SEED=$SIMULATION_SEED"
cargo test -p headwater --lib cluster::simulation -- --nocapture
