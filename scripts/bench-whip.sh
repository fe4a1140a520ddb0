#!/bin/sh
# Measures what publishers by WHIP cost the origin: processor time per publisher and second, and memory per
# publisher. The origin, one event loop, has core 0. The publishers (`headwater publish`) have core 1, and
# nobody watches.
#
#   CLIP=FILE scripts/bench-whip.sh [PUBLISHERS...]
#
# HEADWATER names the program; by default it is built. SECONDS_MEASURED (12) is how long the processor time is
# counted, 10 s after the publishers began. CLIP has a keyframe every 2 s. `media` is how many seconds of it came
# in a second: 1 if all came. Raw figures go to lab/runs/DATE-whip/, or to OUT.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
[ $# -gt 0 ] || set -- 20 50 100
measured=${SECONDS_MEASURED:-12}
settle=10
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-whip}
mkdir -p "$out"
work=$(mktemp -d)
server= publishers=
trap 'for pid in $publishers $server; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT INT TERM

if [ -z "${HEADWATER:-}" ]; then
    cargo build --release -q -p headwater
    HEADWATER=${CARGO_TARGET_DIR:-target}/release/headwater
fi
machine > "$out/machine.txt"

# For all streams, how many seconds of video their playlists have, and had before. A segment lasts 2 s.
seconds() {
    for number in $(seq "$count"); do
        curl -s "$base/live/s$number/v0/media.m3u8"
    done | awk -F '[:,]' '/^#EXT-X-MEDIA-SEQUENCE/ { all += 2 * $2 } /^#EXTINF/ { all += $2 } END { printf "%.3f\n", all }'
}

for count in "$@"; do
    start_origin "$work"
    before=$(memory "$server")
    for number in $(seq "$count"); do
        taskset -c 1 "$HEADWATER" publish "$CLIP" "$base/live/s$number/whip" --loop > /dev/null 2>> "$work/publishers" &
        publishers="$publishers $!"
    done
    sleep "$settle"
    media_from=$(seconds) from=$(now) server_from=$(ticks "$server")
    sleep "$measured"
    server_to=$(ticks "$server") to=$(now) media_to=$(seconds)
    after=$(memory "$server")
    warnings=$(grep -c WARN "$work/log" || true)
    # shellcheck disable=SC2086
    kill $publishers || true
    # shellcheck disable=SC2086
    wait $publishers || true
    kill "$server"
    wait "$server" || true
    server= publishers=
    awk -v n="$count" -v t="$from $to" -v s="$server_from $server_to" -v m="$media_from $media_to" \
        -v k="$before $after" -v w="$warnings" 'BEGIN {
        split(t, T); split(s, S); split(m, M); split(k, K); d = T[2] - T[1];
        printf "publishers %d  server %.0f us/publisher/s, %.0f %% of a core, %.0f KiB/publisher  media %.3f s/s  warnings %d\n",
            n, (S[2] - S[1]) * 10000 / d / n, (S[2] - S[1]) / d, (K[2] - K[1]) / n, (M[2] - M[1]) / d / n, w }' |
        tee -a "$out/figures.txt"
    cp "$work/log" "$out/log-$count.txt"
    cp "$work/publishers" "$out/publishers-$count.txt"
done
