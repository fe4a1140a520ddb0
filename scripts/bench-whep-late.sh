#!/bin/sh
# Measures how late pictures are at viewers by WHEP, from the moment when `headwater publish` sends them by WHIP, and what
# the sessions of these viewers cost the origin while no media come. The origin, with one event loop, has core 0; the
# publisher and the viewers have core 1. The clip is 20 s of 600 kbit/s with 30 pictures a second and five keyframes a
# second: what a viewer gets at first, the pictures since the newest keyframe, is late by up to that distance.
#
#   scripts/bench-whep-late.sh [VIEWERS...]
#
# HEADWATER and STREAMGAUGE name the programs; by default they are built. The publisher is stopped by a signal for
# the last 9 s, of which 7 s are measured: what the origin does then is for its sessions. Raw figures go to
# lab/runs/DATE-whep-late/, or to OUT.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
[ $# -gt 0 ] || set -- 1 200 500
watched=70
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-whep-late}
mkdir -p "$out"
work=$(mktemp -d)
server= viewers= publisher=
trap 'for pid in $viewers $publisher $server; do kill -KILL "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT INT TERM

find_programs
ulimit -n "$(ulimit -H -n)"
machine > "$out/machine.txt"

ffmpeg -v error -f lavfi -i testsrc2=s=640x360:r=30:d=20 -f lavfi -i sine=d=20 -c:v libx264 -profile:v baseline \
    -preset veryfast -g 6 -b:v 540k -maxrate 600k -bufsize 300k -pix_fmt yuv420p -c:a libopus -b:a 64k -ac 2 -ar 48000 \
    "$work/clip.mp4"

for count in "$@"; do
    start_origin "$work"
    stream=$base/live/clip
    taskset -c 1 "$HEADWATER" publish --stamp --loop "$work/clip.mp4" "$stream/whip" > /dev/null 2> "$work/publisher.log" &
    publisher=$!
    until [ "$(curl -s "$stream/v0/media.m3u8" | grep -c EXTINF)" -ge 3 ]; do sleep 0.2; done
    taskset -c 1 "$STREAMGAUGE" viewers "$stream/whep" --batch-size "$count" --loops 1 --processes 1 --verify sample=10 \
        --duration "${watched}s" --at-least 0.5 --json > "$work/viewers.json" 2> /dev/null &
    viewers=$!
    sleep $((watched - 9))
    kill -STOP "$publisher"
    sleep 1
    from=$(now) before=$(ticks "$server")
    sleep 7
    to=$(now) after=$(ticks "$server") load=$(cut -d ' ' -f 1-3 /proc/loadavg)
    wait "$viewers" || true
    viewers=
    kill -KILL "$publisher"
    kill "$server"
    wait "$publisher" "$server" || true
    server= publisher=
    python3 - "$work/viewers.json" "$count" "$from" "$to" "$before" "$after" "$load" <<'P' | tee -a "$out/figures.txt"
import json, sys
path, count, load = sys.argv[1], int(sys.argv[2]), sys.argv[7]
start, end, before, after = map(float, sys.argv[3:7])
document = json.load(open(path))
all, g = document["viewers"], document["generator"]
ms = lambda of: {name: f"{1000 * of[name]:.1f}" for name in ("min", "p50", "p99", "max")}
print(f"viewers {count}  played {all['played']} lost {all['rtp']['lost']}  pictures late in ms, the mean of each "
      f"viewer {ms(all['delivery'])}, 99 % of each {ms(all['delivery_p99'])}  without media "
      f"{(after - before) * 10_000 / (end - start) / count:.0f} us/viewer/s  saturated {g['saturated']} "
      f"lag {1000 * g['loops'][0]['lag_p99']:.1f} ms  load {load}")
P
    cp "$work/viewers.json" "$out/$count.json"
done
