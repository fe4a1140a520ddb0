#!/bin/sh
# Measures a push viewer of a ladder whose link falls from 8 to 1 Mbit/s and comes back, in its own
# network namespaces, shaped by tc tbf. Needs root, and ip, tc, ffmpeg, curl and python3.
#
#   scripts/bench-push-link.sh [SECONDS-BEFORE SECONDS-OF-1-MBIT SECONDS-AFTER]
#
# The ladder is the paper's: 320x240 at 100 kbit/s, 1280x720 at 1,200, 1920x1080 at 5,000, with
# groups of 1 s. Raw figures go to lab/runs/DATE-push-link/. HEADWATER and STREAMGAUGE name programs
# that are already built. SOURCES is a folder that keeps the encoded renditions. PART is a target
# for parts (40ms).
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
before=${1:-20} during=${2:-25} after=${3:-30}
part=${PART:-40ms}
media=${HEADWATER_MEDIA:-../shared/media}
target=${CARGO_TARGET_DIR:-target}
out=${OUT:-$PWD/lab/runs/$(date -u +%Y-%m-%d)-push-link}

if [ -z "${HEADWATER:-}" ] || [ -z "${STREAMGAUGE:-}" ]; then
    cargo build -q --release -p headwater -p streamgauge
fi
headwater=${HEADWATER:-$target/release/headwater}
streamgauge=${STREAMGAUGE:-$target/release/streamgauge}
mkdir -p "$out"
machine > "$out/machine.txt"

work=$(mktemp -d)
sources=${SOURCES:-$work}
server=headwater-$$-s
client=headwater-$$-c
pids=
clean() {
    for pid in $pids; do kill "$pid" 2> /dev/null || true; done
    for pid in $pids; do wait "$pid" 2> /dev/null || true; done
    ip netns del "$server" 2> /dev/null || true
    ip netns del "$client" 2> /dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# encode NAME SIZE KBIT PRESET: makes 20 s of video at a constant rate.
encode() {
    [ -f "$sources/$1.flv" ] && return
    ffmpeg -y -nostdin -loglevel error -t 20 -i "$media/bbb/bbb_60s_720p_h264_aac.mp4" \
        -an -vf "scale=$2" -c:v libx264 -preset "$4" -tune zerolatency \
        -b:v "$3k" -maxrate "$3k" -bufsize "$(($3 / 2))k" \
        -x264-params nal-hrd=cbr:keyint=30:min-keyint=30:scenecut=0 "$work/$1.part.flv"
    mv "$work/$1.part.flv" "$sources/$1.flv"
}
encode low 320:240 100 veryfast
encode medium 1280:720 1200 veryfast
encode high 1920:1080 5000 ultrafast

ip netns add "$server"
ip netns add "$client"
ip -n "$server" link add hw0 type veth peer name hw1 netns "$client"
ip -n "$server" addr add 10.88.0.1/24 dev hw0
ip -n "$client" addr add 10.88.0.2/24 dev hw1
for space in "$server" "$client"; do ip -n "$space" link set lo up; done
ip -n "$server" link set hw0 up
ip -n "$client" link set hw1 up
link() {
    tc -n "$server" qdisc replace dev hw0 root tbf rate "$1" burst 16kb latency 50ms
}
link 8mbit

printf '[live]\npart_target = "%s"\n[control]\nadmin = ["10.88.0.0/24"]\n' "$part" > "$work/headwater.toml"
HEADWATER_LOG=${HEADWATER_LOG:-warn} ip netns exec "$server" "$headwater" serve --config "$work/headwater.toml" \
    --http 10.88.0.1:8080 --rtmp 10.88.0.1:1935 > "$work/ready" 2> "$out/server.log" &
pids=$!
until grep -q '^ready' "$work/ready"; do
    kill -0 "$pids"
    sleep 0.1
done
url=rtmp://10.88.0.1/live/film
# Audio is generated live, because a loop of it would not have the same length as a loop of the
# video.
ip netns exec "$server" ffmpeg -nostdin -loglevel error \
    -re -stream_loop -1 -i "$sources/low.flv" -re -stream_loop -1 -i "$sources/medium.flv" \
    -re -stream_loop -1 -i "$sources/high.flv" -re -f lavfi -i sine=r=48000 \
    -map 0:v -map 3:a -c:v copy -c:a aac -b:a 32k -f flv "$url?rendition=low" \
    -map 1:v -c copy -f flv "$url?rendition=medium" -map 2:v -c copy -f flv "$url?rendition=high" &
pids="$pids $!"
metrics() { ip netns exec "$server" curl -s http://10.88.0.1:8080/metrics; }
now() { date +%s%3N; }
until ip netns exec "$server" curl -s http://10.88.0.1:8080/live/film/index.m3u8 | grep -q 1920x1080; do
    sleep 0.5
done
sleep 4

ip netns exec "$client" "$streamgauge" watch ws://10.88.0.1:8080/live/film/push \
    --duration "$((before + during + after))s" --json > "$out/watch.json" 2> "$out/watch.log" &
watch=$!
pids="$pids $watch"
began=$(now)
fell=$((began + before * 1000)) rose=$((began + (before + during) * 1000))
link=8
: > "$out/renditions.csv"
while kill -0 "$watch" 2> /dev/null; do
    at=$(now)
    if [ "$link" = 8 ] && [ "$at" -ge "$fell" ] && [ "$at" -lt "$rose" ]; then
        link 1mbit
        link=1
    elif [ "$link" = 1 ] && [ "$at" -ge "$rose" ]; then
        link 8mbit
        link=8
    fi
    # Records the bit rate of the link, and the viewer's rendition.
    rendition=$(metrics | sed -n 's/^headwater_push_viewers{.*rendition="\([^"]*\)"} 1$/\1/p')
    echo "$((at - began)),$link,$rendition" >> "$out/renditions.csv"
    sleep 0.1
done
wait "$watch" || echo "streamgauge: exit status $?"
metrics | grep -E '^headwater_(push_switches|slow_viewers)' > "$out/metrics.txt" || true
python3 - "$out" "$((before + during))" <<'PYTHON' | tee "$out/result.txt"
import csv, json, sys
out, rose = sys.argv[1], int(sys.argv[2]) * 1000
rows = [(int(at), link, name) for at, link, name in csv.reader(open(f"{out}/renditions.csv"))]
changes = [row for before, row in zip([(0, "", "")] + rows, rows) if before[2] != row[2]]
print("renditions:", ", ".join(f"{name or 'none'} at {at / 1000:.1f} s" for at, _, name in changes))
top = next(name for at, link, name in reversed(rows) if name)
# The time since which the viewer has had its final rendition without a break.
back = next((at for at, _, name in reversed(changes) if name), None)
back = [at for at, _, name in changes if name == top and at >= rose]
print(f"on {top} {(back[0] - rose) / 1000:.1f} s after the link came back" if back else f"on {top}, not from below")
print(json.dumps(json.load(open(f"{out}/watch.json")), indent=1))
PYTHON
