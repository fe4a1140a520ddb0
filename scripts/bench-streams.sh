#!/bin/sh
# Measures the cost of many publishers of 300 kbit/s to the origin: processor time, memory,
# descriptors, mappings. The origin, with one event loop, has core 0, and the publishers have core
# 1. There are no viewers.
#
#   scripts/bench-streams.sh [SECONDS] [STREAMS…]
#
# WINDOW is live.window, MEMORY is live.memory, RATE is the number of pictures per second, and BATCH
# how many milliseconds of media go into one write. B names another build of the origin that takes
# turns with this tree's; MEMORY is not passed to it. Raw figures go to lab/runs/DATE-streams/, or
# to OUT.
set -eu
# A log line for each new stream would be a load by itself.
export HEADWATER_LOG=warn
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
seconds=${1:-90}
test "$#" -eq 0 || shift
test "$#" -gt 0 || set -- 1000 3000 10000
window=${WINDOW:-30s}
memory=${MEMORY:-0B}
rate=${RATE:-30}
batch=${BATCH:-200}
media=${HEADWATER_MEDIA:-../shared/media}
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-streams}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# 250 kbit/s of video, and 48 kbit/s of audio.
ffmpeg -v error -y -i "$media/bbb/bbb_2min_240p_h264_aac.mp4" -t 20 -vf "scale=320:180,fps=$rate" \
    -c:v libx264 -preset fast -b:v 250k -maxrate 250k -bufsize 250k -g "$((2 * rate))" -sc_threshold 0 -bf 0 \
    -c:a aac -b:a 48k -ar 44100 "$work/clip.mp4"
# If this machine runs a publisher late, the origin must not take it for gone.
printf 'workers = 1\n[rtmp]\nmax_publishers = 0\nmax_connections_per_address = 0\nsetup_timeout = "5m"\n[live]\nsilence = "5m"\nwindow = "%s"\n' \
    "$window" > "$work/b.toml"
{ cat "$work/b.toml"; printf 'memory = "%s"\n' "$memory"; } > "$work/a.toml"
{
    machine
    free -m
    cat "$work/a.toml"
} > "$out/machine.txt"

for streams in "$@"; do
    for build in A ${B:+B}; do
        config=$work/a.toml
        binary=
        test "$build" = A || { config=$work/b.toml; binary="--binary $B"; }
        name="$streams-$build"
        echo "== $name, load before: $(cut -d ' ' -f 1-3 /proc/loadavg)" | tee "$out/$name.txt"
        # shellcheck disable=SC2086 # two words, or none
        cargo bench -q -p headwater --bench streams -- --streams "$streams" --seconds "$seconds" --batch "$batch" \
            --file "$work/clip.mp4" --config "$config" $binary --server-core 0 --load-core 1 2>&1 \
            | tee -a "$out/$name.txt"
    done
done
