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

media=${HEADWATER_MEDIA:-../shared/media}

# seed TARGET: the corpus starts from what is kept in fuzz/seeds (examples, and what was found) and from
# real files, where the test media are there, and grows from run to run. Small ones only, since the
# fuzzer is as fast as its inputs are short.
seed() {
    mkdir -p "fuzz/corpus/$1"
    [ ! -d "fuzz/seeds/$1" ] || cp -n "fuzz/seeds/$1"/* "fuzz/corpus/$1/"
    case $1 in
    flv_memory) folders= ;;
    flv*) folders="flv corrupt" ;;
    mp4* | cmaf* | titles) folders="mp4 corrupt" ;;
    viewer_media) folders="mp4 flv" ;;
    codec*) folders="mp4" ;;
    rtmp*) folders="rtmp" ;;
    *) folders= ;;
    esac
    for folder in $folders; do
        [ -d "$media/$folder" ] || continue
        find -L "$media/$folder" -type f -size -64k -exec cp -n {} "fuzz/corpus/$1/" \;
    done
}

for name in $targets; do
    printf '\n== %s\n' "$name"
    seed "$name"
    cargo fuzz run "$name" -- -max_total_time="${FUZZ_SECONDS:-30}" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1
done
