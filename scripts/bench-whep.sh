#!/bin/sh
# Measures what a viewer by WHEP costs the origin: processor time per viewer and second, and memory
# per viewer. The origin with its demo stream, one event loop, has core 0, and the viewers core 1.
# ffmpeg, which makes their sound, is on core 0, too; its time is not counted. With CLIP, the viewers watch
# that file instead, which `headwater publish` sends in a loop from core 1.
#
#   scripts/bench-whep.sh [VIEWERS...]
#
# HEADWATER and STREAMGAUGE name the programs; by default they are built. SECONDS_MEASURED (12) is how
# long the processor time is counted, 10 s after the viewers began to join. Raw figures go to
# lab/runs/DATE-whep/, or to OUT.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
[ $# -gt 0 ] || set -- 50 200 500
measured=${SECONDS_MEASURED:-12}
settle=10
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-whep}
mkdir -p "$out"
work=$(mktemp -d)
server= viewers= publisher=
trap 'for pid in $viewers $publisher $server; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT INT TERM

if [ -z "${STREAMGAUGE:-}" ] || [ -z "${HEADWATER:-}" ]; then
    cargo build --release -q -p streamgauge -p headwater
fi
built=${CARGO_TARGET_DIR:-target}/release
STREAMGAUGE=${STREAMGAUGE:-$built/streamgauge}
HEADWATER=${HEADWATER:-$built/headwater}
ulimit -n "$(ulimit -H -n)"
machine > "$out/machine.txt"

# Processor time in hundredths of a second.
ticks() { cut -d ')' -f 2- "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
memory() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }
now() { date +%s.%N; }

for count in "$@"; do
    taskset -c 0 "$HEADWATER" serve --http 127.0.0.1:0 --rtmp 127.0.0.1:0 --webrtc 127.0.0.1:0 \
        --workers 1 --demo > "$work/ready" 2> "$work/log" &
    server=$!
    until grep -q ready "$work/ready"; do sleep 0.1; done
    base=$(sed -n 's/^ready http=\([^ ]*\).*/http:\/\/\1/p' "$work/ready")
    stream=demo
    if [ -n "${CLIP:-}" ]; then
        stream=clip
        rtmp=$(sed -n 's/.* rtmp=\([^ ]*\).*/\1/p' "$work/ready")
        taskset -c 1 "$HEADWATER" publish "$CLIP" "rtmp://$rtmp/live/clip" --loop > /dev/null 2>> "$work/log" &
        publisher=$!
    fi
    until [ "$(curl -s "$base/live/$stream/v0/media.m3u8" | grep -c EXTINF)" -ge 4 ]; do sleep 0.2; done
    before=$(memory "$server")
    taskset -c 1 "$STREAMGAUGE" viewers "$base/live/$stream/whep" --batch-size "$count" --loops 1 \
        --duration "$((settle + measured + 3))s" --json > "$work/$count.json" 2> /dev/null &
    viewers=$!
    sleep "$settle"
    from=$(now) server_from=$(ticks "$server") viewers_from=$(ticks "$viewers")
    sleep "$measured"
    to=$(now) server_to=$(ticks "$server") viewers_to=$(ticks "$viewers")
    after=$(memory "$server") own=$(memory "$viewers") load=$(cut -d ' ' -f 1-3 /proc/loadavg)
    wait "$viewers" || true
    viewers=
    # shellcheck disable=SC2086
    kill $publisher "$server"
    # shellcheck disable=SC2086
    wait $publisher "$server" || true
    server= publisher=
    python3 - "$work/$count.json" "$count" "$from" "$to" "$server_from" "$server_to" "$viewers_from" \
        "$viewers_to" "$before" "$after" "$own" "$load" <<'P' | tee -a "$out/figures.txt"
import json, sys
path, count, load = sys.argv[1], int(sys.argv[2]), sys.argv[12]
start, end, s0, s1, v0, v1, before, after, own = map(float, sys.argv[3:12])
of = lambda ticks: ticks * 10_000 / (end - start) / count
document = json.load(open(path))
all, g = document["viewers"], document["generator"]
rtp = all["rtp"] or {}
print(f"viewers {count}  server {of(s1 - s0):.0f} us/viewer/s, {(s1 - s0) / (end - start):.0f} % of a core, "
      f"{(after - before) / count:.0f} KiB/viewer  generator {of(v1 - v0):.0f} us/viewer/s, "
      f"{own / count:.0f} KiB/viewer  played {all['played']} satisfied {all['satisfied']} "
      f"stalls {all['stalls']} bit_rate {(all['bit_rate'] or {}).get('mean', 0):.3f} Mbit/s "
      f"packets {rtp.get('packets')} lost {rtp.get('lost')} recovered {rtp.get('recovered')} "
      f"errors {all['errors']} saturated {g['saturated']}  load {load}")
P
    cp "$work/$count.json" "$out/viewers-$count.json"
done
