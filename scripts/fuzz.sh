#!/bin/sh
# Runs the fuzz targets, FUZZ_SECONDS (30) each. Usage: scripts/fuzz.sh [TARGET]
# A crash is kept below fuzz/artifacts/TARGET/, and the run fails.
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh fuzz
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

# The sanitizer flags are unstable; the stable compiler knows them when told so.
export RUSTC_BOOTSTRAP=1

declared=$(cargo fuzz list)
for file in fuzz/fuzz_targets/*.rs; do
    [ -e "$file" ] || continue
    name=$(basename "$file" .rs)
    echo "$declared" | grep -qx "$name" || {
        echo "$file has no [[bin]] in fuzz/Cargo.toml" >&2
        exit 1
    }
done

targets=${1:-$declared}
[ -n "$targets" ] || { echo "no fuzz targets" >&2; exit 1; }

for name in $targets; do
    echo "== $name"
    # Real files to start from, where the repository keeps some, are read and never written to.
    mkdir -p "fuzz/corpus/$name"
    set -- "fuzz/corpus/$name"
    [ -d "fuzz/seeds/$name" ] && set -- "$@" "fuzz/seeds/$name"
    cargo fuzz run "$name" "$@" -- -max_total_time="${FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
done
