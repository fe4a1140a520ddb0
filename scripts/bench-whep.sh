#!/bin/sh
# Measures what a viewer by WHEP costs the origin: processor time per viewer and second, and memory
# per viewer. The origin with its demo stream, one event loop, has core 0, and the viewers core 1.
# ffmpeg, which makes their sound, is on core 0, too; its time is not counted. With CLIP, the viewers watch
# that file instead, which `headwater publish` sends by RTMP in a loop from core 1. MEDIAMTX names a program of
# MediaMTX, which is then measured after the origin with each number of viewers, with the same CLIP. Its sound
# is Opus: MediaMTX makes none of AAC, and refuses viewers who ask for sound where there is none.
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

find_programs
ulimit -n "$(ulimit -H -n)"
machine > "$out/machine.txt"

# Starts the origin ($server) and a publisher. Sets $whep to where viewers watch, once there are media.
start_headwater() {
    start_origin "$work" --demo
    stream=demo
    if [ -n "${CLIP:-}" ]; then
        stream=clip
        start_publisher "rtmp://$rtmp/live/clip"
    fi
    until [ "$(curl -s "$base/live/$stream/v0/media.m3u8" | grep -c EXTINF)" -ge 4 ]; do sleep 0.2; done
    whep=$base/live/$stream/whep
}

# The same with MediaMTX, in which only what this needs is turned on.
start_mediamtx() {
    rtmp=$(free_port) http=$(free_port) media=$(free_port)
    cat > "$work/mediamtx.yml" <<YML
logLevel: warn
rtsp: false
hls: false
srt: false
moq: false
rtmpAddress: 127.0.0.1:$rtmp
webrtcAddress: 127.0.0.1:$http
webrtcLocalUDPAddress: 127.0.0.1:$media
paths: {all_others: {}}
YML
    taskset -c 0 "$MEDIAMTX" "$work/mediamtx.yml" > "$work/log" 2>&1 &
    server=$!
    until curl -s -o /dev/null "http://127.0.0.1:$http/"; do
        kill -0 "$server"
        sleep 0.1
    done
    start_publisher "rtmp://127.0.0.1:$rtmp/live/clip"
    # As long as four segments last.
    sleep 8
    whep=http://127.0.0.1:$http/live/clip/whep
}

start_publisher() {
    taskset -c 1 "$HEADWATER" publish "$CLIP" "$1" --loop > /dev/null 2> "$work/publisher.log" &
    publisher=$!
}

for count in "$@"; do for name in headwater ${MEDIAMTX:+mediamtx}; do
    "start_$name"
    before=$(memory "$server")
    taskset -c 1 "$STREAMGAUGE" viewers "$whep" --batch-size "$count" --loops 1 \
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
    python3 - "$work/$count.json" "$count" "$name" "$from" "$to" "$server_from" "$server_to" "$viewers_from" \
        "$viewers_to" "$before" "$after" "$own" "$load" <<'P' | tee -a "$out/figures.txt"
import json, sys
path, count, name, load = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[13]
start, end, s0, s1, v0, v1, before, after, own = map(float, sys.argv[4:13])
of = lambda ticks: ticks * 10_000 / (end - start) / count
document = json.load(open(path))
all, g = document["viewers"], document["generator"]
rtp = all["rtp"] or {}
print(f"{name} viewers {count}  server {of(s1 - s0):.0f} us/viewer/s, {(s1 - s0) / (end - start):.0f} % of a core, "
      f"{(after - before) / count:.0f} KiB/viewer  generator {of(v1 - v0):.0f} us/viewer/s, "
      f"{own / count:.0f} KiB/viewer  played {all['played']} satisfied {all['satisfied']} "
      f"stalls {all['stalls']} bit_rate {(all['bit_rate'] or {}).get('mean', 0):.3f} Mbit/s "
      f"packets {rtp.get('packets')} lost {rtp.get('lost')} recovered {rtp.get('recovered')} "
      f"errors {all['errors']} saturated {g['saturated']}  load {load}")
P
    cp "$work/$count.json" "$out/$name-$count.json"
done; done
