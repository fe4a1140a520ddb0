#!/bin/bash
# What a viewer of a live low-latency HLS stream costs the server: processor time by viewer and second,
# and memory by viewer. The server, with one event loop, has core 0, the viewers core 1, where the
# publisher is too. Two builds take turns, so that both have the same machine.
#
#   scripts/bench-llhls.sh [VIEWERS] [ROUNDS] [SECONDS]
#
# The stream is video alone, a clip of 1.8 Mbit/s made once and published over and over. A and B name
# the builds of headwater; if not given, A is built from this tree and there is no B. STREAMGAUGE names
# the viewers; if not given, it is built too. Raw figures go to lab/runs/DATE-llhls/, or to OUT. A round
# whose viewers were the limit has saturated = 1; its figures are not to be trusted.
set -eu
cd "$(dirname "$0")/.."
viewers=${1:-1000}
rounds=${2:-5}
seconds=${3:-20}
http=${PORT:-18675}
rtmp=$((http + 1))
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-llhls}
mkdir -p "$out"
work=$(mktemp -d)
server=
publisher=
stop() {
    for pid in $publisher $server; do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    server= publisher=
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ -z "${A:-}" ] || [ -z "${STREAMGAUGE:-}" ]; then
    cargo build --release -q -p headwater -p streamgauge
fi
built=${CARGO_TARGET_DIR:-target}/release
A=${A:-$built/headwater}
STREAMGAUGE=${STREAMGAUGE:-$built/streamgauge}

ulimit -n "$(ulimit -H -n)"
clip=$work/clip.mp4
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=1280x720:rate=30 -t 20 \
    -c:v libx264 -preset veryfast -pix_fmt yuv420p -b:v 1800k -minrate 1800k -maxrate 1800k \
    -bufsize 1800k -x264-params nal-hrd=cbr -g 60 -keyint_min 60 -sc_threshold 0 "$clip"
{
    uname -srm
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "cores $(nproc), load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    git rev-parse HEAD
    echo "A $A"
    echo "B ${B:-}"
} > "$out/machine.txt"
printf 'workers = 1\n' > "$work/headwater.toml"
playlist=http://127.0.0.1:$http/live/bench/v0/media.m3u8

start() {
    taskset -c 0 "$1" serve --config "$work/headwater.toml" --http "127.0.0.1:$http" \
        --rtmp "127.0.0.1:$rtmp" > "$work/server.log" 2>&1 &
    server=$!
    until (: < "/dev/tcp/127.0.0.1/$rtmp") 2>/dev/null; do
        kill -0 "$server" || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.1
    done
    taskset -c 1 "$A" publish --loop "$clip" "rtmp://127.0.0.1:$rtmp/live/bench" \
        > "$work/publisher.log" 2>&1 &
    publisher=$!
    tries=0
    until curl -sf "$playlist" | grep -q EXTINF; do
        tries=$((tries + 1))
        test "$tries" -lt 300 || { cat "$work/server.log" "$work/publisher.log" >&2; exit 1; }
        sleep 0.1
    done
}
# Clock ticks used so far, and calls of write: what wakes the event loop is one.
ticks() { sed 's/.*) //' "/proc/$server/stat" | awk '{ print $12 + $13 }'; }
calls() { sed -n 's/^syscw: //p' "/proc/$server/io"; }
anonymous() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$server/status"; }

hertz=$(getconf CLK_TCK)
count=$(((viewers + 9) / 10 * 10))
figures=$out/figures.csv
echo "round,build,viewers,cpu_us_per_viewer_s,own_bytes,writes_per_s,satisfied,saturated,load" > "$figures"
one() {
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    start "$2"
    own=$(anonymous)
    # Ten batches, which have joined after two seconds.
    taskset -c 1 "$STREAMGAUGE" viewers "$playlist" --batches 10 --batch-size $((count / 10)) \
        --interval 200ms --duration "$((seconds + 6))s" --verify none --loops 1 --processes 1 \
        --json -o "$work/run" > "$work/out" 2> "$work/err" &
    many=$!
    sleep 5
    before=$(ticks) wrote=$(calls) began=$(date +%s%N)
    sleep $((seconds - 1))
    after=$(ticks) wrote=$(($(calls) - wrote)) ended=$(date +%s%N)
    own=$(($(anonymous) - own))
    # 1: not all got what they wanted; 3: the viewers were the limit. Both are in the figures.
    wait "$many" || test $? -ne 2 || { cat "$work/err" >&2; exit 1; }
    stop
    cp "$work/out" "$out/$round-$1.json"
    rm -rf "$work/run"
    satisfied=$(sed -n 's/^    "satisfied": \([0-9]*\),$/\1/p' "$work/out")
    saturated=$(grep -c '"saturated": true' "$work/out" || true)
    awk -v head="$round,$1,$count" -v tail="${satisfied:-0},$saturated,$load" -v n="$count" \
        -v ticks=$((after - before)) -v hertz="$hertz" -v ns=$((ended - began)) \
        -v own="$own" -v wrote="$wrote" 'BEGIN {
            printf "%s,%.1f,%.0f,%.0f,%s\n", head, ticks / hertz * 1e6 / (ns / 1e9) / n,
                own * 1024 / n, wrote / (ns / 1e9), tail
        }' | tee -a "$figures"
}
for round in $(seq "$rounds"); do
    one A "$A"
    test -z "${B:-}" || one B "$B"
done

awk -F , '
    NR > 1 { k = $2; n[k]++; for (f = 4; f <= 6; f++) v[k, f, n[k]] = $f; missed[k] += $3 - $7; s[k] += $8 }
    function median(k, f, m, i, j, t, a) {
        m = n[k]
        for (i = 1; i <= m; i++) a[i] = v[k, f, i]
        for (i = 2; i <= m; i++)
            for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return m % 2 ? a[(m + 1) / 2] : (a[m / 2] + a[m / 2 + 1]) / 2
    }
    END {
        printf "%-6s %12s %10s %10s %9s %10s\n", "build", "us/viewer-s", "own B", "writes/s", \
            "unhappy", "saturated"
        for (k in n)
            printf "%-6s %12.1f %10.0f %10.0f %9d %10d\n", k, median(k, 4), median(k, 5), \
                median(k, 6), missed[k], s[k] | "sort"
    }' "$figures" | tee "$out/summary.txt"
