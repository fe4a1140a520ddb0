#!/bin/sh
# Measures the cost of a viewer to the generator: processor time per viewer and second, and memory
# per viewer. The origin with its demo stream has core 0, and the generator, with one event loop,
# core 1.
#
#   scripts/bench-viewers.sh [VIEWERS] [ROUNDS] [SECONDS]
#
# A and B name two builds of streamgauge that take turns, so that both have the same conditions. By
# default A is built from this tree, and there is no B. HEADWATER names the origin; by default it is
# built too. VERIFIED is the number of viewers in runs where all are verified (a tenth of VIEWERS).
# Raw figures go to lab/runs/DATE-viewers/, or to OUT. Every run in which the generator was not the
# limit has saturated = 0.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
viewers=${1:-1000}
rounds=${2:-5}
seconds=${3:-10}
verified=${VERIFIED:-$(((viewers + 9) / 10))}
http=${PORT:-18475}
rtmp=$((http + 1))
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-viewers}
mkdir -p "$out"
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT INT TERM

if [ -z "${A:-}" ] || [ -z "${HEADWATER:-}" ]; then
    cargo build --release -q -p streamgauge -p headwater
fi
built=${CARGO_TARGET_DIR:-target}/release
A=${A:-$built/streamgauge}
B=${B:-}
HEADWATER=${HEADWATER:-$built/headwater}

ulimit -n "$(ulimit -H -n)"
taskset -c 0 "$HEADWATER" serve --http "127.0.0.1:$http" --rtmp "127.0.0.1:$rtmp" --demo \
    > "$work/server.out" 2> "$work/server.err" &
server=$!
base=http://127.0.0.1:$http/live/demo
tries=0
until curl -sf "$base/v0/media.m3u8" | grep -q EXTINF; do
    tries=$((tries + 1))
    test "$tries" -lt 300 || { cat "$work/server.err" >&2; exit 1; }
    sleep 0.1
done

{
    machine
    echo "A $A"
    echo "B $B"
} > "$out/machine.txt"

# One run: BUILD URL VIEWERS VERIFY. Prints viewer-seconds, user and system seconds, anonymous KiB
# late in the run, the number of satisfied viewers, whether the generator was the limit, and its
# lag.
run() {
    rm -rf "$work/run"
    # All viewers have joined two seconds after the start: each tenth of them a fifth of a second
    # after the one before.
    batch=$((($3 + 9) / 10))
    /usr/bin/time -q -f '%U %S' -o "$work/time" taskset -c 1 "$1" viewers "$2" --batches 10 \
        --batch-size "$batch" --interval 200ms --duration "${seconds}s" --verify "$4" \
        --loops 1 --processes 1 --json -o "$work/run" > "$work/out" 2> "$work/err" &
    timer=$!
    sleep "$seconds"
    memory=0
    for pid in $(pgrep -P "$timer"); do
        memory=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$pid/status")
    done
    # 1: not all viewers were satisfied; 3: the generator was the limit. Both are in the figures.
    wait "$timer" || test $? -ne 2 || { cat "$work/err" >&2; exit 1; }
    watched=$(sed -n 's/.*"watched":\([0-9.]*\).*/\1/p' "$work/run/viewers.jsonl" \
        | awk '{ s += $1 } END { printf "%.3f", s }')
    satisfied=$(sed -n 's/^    "satisfied": \([0-9]*\),$/\1/p' "$work/out")
    saturated=$(grep -c '"saturated": true' "$work/out" || true)
    lag=$(sed -n 's/.*"lag_p99": \([0-9.e-]*\),$/\1/p' "$work/out")
    echo "$watched,$(tr ' ' , < "$work/time"),$memory,$satisfied,$saturated,$lag"
}

figures=$out/figures.csv
echo "round,case,build,viewers,viewer_seconds,cpu_user,cpu_system,anonymous_kib,satisfied,saturated,lag_p99,load" \
    > "$figures"
one() {
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    count=$((($4 + 9) / 10 * 10))
    test "$4" = 1 && count=10
    echo "$round,$1,$2,$count,$(run "$3" "$5" "$4" "$6"),$load" | tee -a "$figures"
}
each() {
    one "$1" A "$A" "$2" "$3" "$4"
    test -z "$B" || one "$1" B "$B" "$2" "$3" "$4"
}
for round in $(seq "$rounds"); do
    # The cost of the program before it has many viewers, for each protocol.
    each rtmp-few 1 "rtmp://127.0.0.1:$rtmp/live/demo" none
    each hls-few 1 "$base/v0/media.m3u8" none
    each mp4-few 1 "$base/live.mp4" none
    each hls-few-verified 1 "$base/v0/media.m3u8" full
    each rtmp "$viewers" "rtmp://127.0.0.1:$rtmp/live/demo" none
    each hls "$viewers" "$base/v0/media.m3u8" none
    each mp4 "$viewers" "$base/live.mp4" none
    each hls-verified "$verified" "$base/v0/media.m3u8" full
done

# The median of each case and build. Memory is that of the viewers in addition to the few.
awk -F , '
    NR > 1 {
        key = $2 "," $3
        if ($2 ~ /-few/) {
            sub(/-few/, "", key)
            few[key] = $8; count[key] = $4
        } else {
            n[key]++
            cpu[key, n[key]] = ($6 + $7) / $5 * 1e6
            runs[key, n[key]] = $8; all[key] = $4
            limited[key] += $10; missed[key] += $4 - $9
        }
    }
    function median(of, key, i, j, t, m, v) {
        m = n[key]
        for (i = 1; i <= m; i++) v[i] = of[key, i]
        for (i = 2; i <= m; i++)
            for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return v[int((m + 1) / 2)]
    }
    END {
        printf "%-14s %-5s %8s %14s %18s %12s %10s %10s\n", "case", "build", "viewers", \
            "us/viewer-s", "viewers of a core", "KiB/viewer", "unhappy", "saturated"
        for (key in n) {
            split(key, of, ",")
            used = median(cpu, key)
            beyond = all[key] > count[key] ? \
                (median(runs, key) - few[key]) / (all[key] - count[key]) : 0
            printf "%-14s %-5s %8d %14.1f %18.0f %12.1f %10d %10d\n", of[1], of[2], all[key], \
                used, 1e6 / used, beyond, missed[key], limited[key] | "sort"
        }
    }' "$figures" | tee "$out/summary.txt"
