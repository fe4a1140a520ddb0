#!/bin/sh
# Runs the fuzz targets, each for FUZZ_SECONDS (30). Usage: scripts/fuzz.sh [TARGET]
# Crashes are kept below fuzz/artifacts/TARGET/, and make the run fail.
set -eu
cd "$(dirname "$0")/.."

scripts/install.sh fuzz
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

# The sanitizer flags are unstable. The stable compiler accepts them with this variable.
export RUSTC_BOOTSTRAP=1

declared=$(cargo fuzz list)
for file in fuzz/fuzz_targets/*.rs; do
    [ -e "$file" ] || continue
    name=$(basename "$file" .rs)
    echo "$declared" | grep -qx "$name" || {
        echo "$file has no [[bin]] in fuzz/Cargo.toml" >&2
        exit 1
    }
    [ -d "fuzz/seeds/$name" ] || {
        echo "$file has no seeds in fuzz/seeds/$name" >&2
        exit 1
    }
done

targets=${1:-$declared}
[ -n "$targets" ] || { echo "no fuzz targets" >&2; exit 1; }

media=${HEADWATER_MEDIA:-../shared/media}

# seed TARGET: fills the corpus, which grows from run to run, with fuzz/seeds (examples, and earlier
# findings) and with real files, if the test media exist. Only small files are used, because short
# inputs make the fuzzer fast.
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
