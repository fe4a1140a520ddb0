#!/bin/sh
# Measures how many viewers of one file a short link can carry: VIEWERS RTMP players of a 0.6 Mbit/s
# file over a link shaped to 700 Mbit/s, in its own network namespaces. Needs root, and ip, tc and
# ffmpeg.
#
#   scripts/bench-pace.sh [VIEWERS] [SECONDS...]
#
# A viewer counts as served if it got media for 90 % of the time. Raw figures go to
# lab/runs/DATE-pace/. HEADWATER and STREAMGAUGE name programs that are already built.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
viewers=${1:-1200}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 60 300
media=${HEADWATER_MEDIA:-../shared/media}
target=${CARGO_TARGET_DIR:-target}
out=$PWD/lab/runs/$(date -u +%Y-%m-%d)-pace
batch=100

if [ -z "${HEADWATER:-}" ] || [ -z "${STREAMGAUGE:-}" ]; then
    cargo build -q --release -p headwater -p streamgauge
fi
headwater=${HEADWATER:-$target/release/headwater}
streamgauge=${STREAMGAUGE:-$target/release/streamgauge}
mkdir -p "$out"
machine > "$out/machine.txt"

work=$(mktemp -d)
server=headwater-$$-s
client=headwater-$$-c
pid=
clean() {
    [ -z "$pid" ] || kill "$pid" 2> /dev/null || true
    [ -z "$pid" ] || wait "$pid" 2> /dev/null || true
    ip netns del "$server" 2> /dev/null || true
    ip netns del "$client" 2> /dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# Nearly nine minutes of the film, so that no viewer reaches its end. It begins where the film has
# its mean bit rate (0.60 Mbit/s in the first 54 s), because its beginning has a higher one (0.67).
mkdir "$work/vod"
source=$(realpath "$media")/bbb/bbb_2min_240p_h264_aac.mp4
{
    printf "file '%s'\ninpoint 70\n" "$source"
    for _ in 1 2 3 4; do printf "file '%s'\n" "$source"; done
} > "$work/list"
ffmpeg -nostdin -loglevel error -f concat -safe 0 -i "$work/list" -c copy -movflags +faststart \
    "$work/vod/film.mp4"

ip netns add "$server"
ip netns add "$client"
ip -n "$server" link add hw0 type veth peer name hw1 netns "$client"
ip -n "$server" addr add 10.87.0.1/24 dev hw0
ip -n "$client" addr add 10.87.0.2/24 dev hw1
for space in "$server" "$client"; do ip -n "$space" link set lo up; done
ip -n "$server" link set hw0 up
ip -n "$client" link set hw1 up
tc -n "$server" qdisc add dev hw0 root tbf rate 700mbit burst 512kb latency 50ms

for seconds in "$@"; do
    HEADWATER_LOG=warn ip netns exec "$server" "$headwater" serve \
        --http 10.87.0.1:8080 --rtmp 10.87.0.1:1935 --vod "$work/vod" \
        > "$work/ready" 2> "$out/server-$seconds.log" &
    pid=$!
    until grep -q '^ready' "$work/ready"; do
        kill -0 "$pid"
        sleep 0.1
    done
    before=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
    ip netns exec "$client" "$streamgauge" viewers rtmp://10.87.0.1/vod/film.mp4 \
        --batches $(((viewers + batch - 1) / batch)) --batch-size $batch --interval 100ms \
        --duration "${seconds}s" --verify none --allowed $((viewers / 30)) --json \
        > "$out/viewers-$seconds.json" || echo "streamgauge: exit status $?"
    after=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
    {
        echo "server: $(((after - before) * 1000 / $(getconf CLK_TCK))) ms of CPU in $seconds s"
        grep -E '^Vm(HWM|RSS)' "/proc/$pid/status"
        tc -n "$server" -s qdisc show dev hw0
    } | tee "$out/server-$seconds.txt"
    kill "$pid"
    wait "$pid" 2> /dev/null || true
    pid=
done
