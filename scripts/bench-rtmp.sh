#!/bin/bash
# What a viewer of a live RTMP stream costs the server: processor time by viewer and second, and memory
# by viewer, its own and the kernel's. The server has core 0, the viewers, with one event loop, core 1,
# where the publisher is too. The origin and nginx with its RTMP module, if that is installed, take
# turns.
#
#   scripts/bench-rtmp.sh [VIEWERS] [ROUNDS] [SECONDS]
#
# The stream is a clip of 600 kbit/s, made once, published over and over. HEADWATER, STREAMGAUGE and
# NGINX name the programs; the first two are built from this tree if not given. BEFORE names a second
# build of the origin, which takes its turn too. OPTIONS is added to the origin's [rtmp].
# Raw figures go to lab/runs/DATE-rtmp/, or to OUT. A round whose viewers were the limit has saturated
# = 1; its figures are not to be trusted.
set -eu
cd "$(dirname "$0")/.."
viewers=${1:-1000}
rounds=${2:-5}
seconds=${3:-20}
http=${PORT:-18575}
rtmp=$((http + 1))
out=${OUT:-lab/runs/$(date -u +%Y-%m-%d)-rtmp}
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

if [ -z "${HEADWATER:-}" ] || [ -z "${STREAMGAUGE:-}" ]; then
    cargo build --release -q -p headwater -p streamgauge
fi
built=${CARGO_TARGET_DIR:-target}/release
HEADWATER=${HEADWATER:-$built/headwater}
STREAMGAUGE=${STREAMGAUGE:-$built/streamgauge}
NGINX=${NGINX:-$(command -v nginx || true)}
module=/usr/lib/nginx/modules/ngx_rtmp_module.so

ulimit -n "$(ulimit -H -n)"
# 500 kbit/s of pictures and 96 kbit/s of sound, a keyframe every two seconds.
clip=$work/clip.mp4
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=640x360:rate=30 \
    -f lavfi -i sine=frequency=440:sample_rate=48000 -t 20 \
    -c:v libx264 -preset veryfast -pix_fmt yuv420p -b:v 500k -minrate 500k -maxrate 500k \
    -bufsize 500k -x264-params nal-hrd=cbr -g 60 -keyint_min 60 -sc_threshold 0 \
    -c:a aac -b:a 96k -ac 2 "$clip"

# As lab/peers/nginx-rtmp.toml has it, with one worker and without HLS, which no other writes here.
cat > "$work/nginx.conf" <<END
load_module $module;
daemon off;
worker_processes 1;
pid $work/nginx.pid;
error_log stderr error;
events { worker_connections 16000; multi_accept on; }
rtmp {
    access_log off;
    server {
        listen 127.0.0.1:$rtmp;
        chunk_size 4096;
        application live { live on; wait_key on; }
    }
}
END
printf 'workers = 1\n[rtmp]\nmax_connections = 0\n' > "$work/before.toml"
# An older build may not know the options.
printf '%s\n' "$(cat "$work/before.toml")" "${OPTIONS:-}" > "$work/headwater.toml"

servers=headwater
test -z "${BEFORE:-}" || servers="$servers before"
test -z "$NGINX" || ! test -e "$module" || servers="$servers nginx-rtmp"
{
    uname -srm
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "cores $(nproc), load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    git rev-parse HEAD
    echo "servers $servers, $viewers viewers, $(stat -c %s "$clip") bytes of clip in 20 s"
} > "$out/machine.txt"

start() {
    case $1 in
        headwater | before)
            program=$HEADWATER
            test "$1" = headwater || program=$BEFORE
            taskset -c 0 "$program" serve --config "$work/$1.toml" \
                --http "127.0.0.1:$http" --rtmp "127.0.0.1:$rtmp" > "$work/server.log" 2>&1 &
            ;;
        nginx-rtmp)
            mkdir -p "$work/logs"
            taskset -c 0 "$NGINX" -e stderr -p "$work" -c "$work/nginx.conf" \
                > "$work/server.log" 2>&1 &
            ;;
    esac
    server=$!
    tries=0
    until (: < "/dev/tcp/127.0.0.1/$rtmp") 2>/dev/null; do
        tries=$((tries + 1))
        test "$tries" -lt 100 || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.1
    done
    taskset -c 1 "$HEADWATER" publish --loop "$clip" "rtmp://127.0.0.1:$rtmp/live/bench" \
        > "$work/publisher.log" 2>&1 &
    publisher=$!
}

# The server's processes: nginx has a worker.
processes() { echo "$server" && pgrep -P "$server" || true; }
# Clock ticks used so far.
ticks() {
    for pid in $(processes); do sed 's/.*) //' "/proc/$pid/stat"; done \
        | awk '{ s += $12 + $13 } END { print s }'
}
anonymous() {
    for pid in $(processes); do sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$pid/status"; done \
        | awk '{ s += $1 } END { print s }'
}
# KiB of pages that TCP sockets hold, both ends of each connection, and of the kernel's objects.
sockets() { awk '/^TCP:/ { for (i = 1; i < NF; i++) if ($i == "mem") print $(i + 1) * 4 }' /proc/net/sockstat; }
slab() { awk '/^Slab:/ { print $2 }' /proc/meminfo; }

# So many viewers for so long, in ten batches that join within two seconds.
watch() {
    taskset -c 1 "$STREAMGAUGE" viewers "rtmp://127.0.0.1:$rtmp/live/bench" --batches 10 \
        --batch-size $((($1 + 9) / 10)) --interval 200ms --duration "${2}s" --verify none \
        --loops 1 --processes 1 --json -o "$work/run-$1" > "$work/out-$1" 2> "$work/err-$1"
}

hertz=$(getconf CLK_TCK)
figures=$out/figures.csv
echo "round,server,viewers,cpu_us_per_viewer_s,own_bytes,sockets_bytes,slab_bytes,satisfied,saturated,load" \
    > "$figures"
for round in $(seq "$rounds"); do
    for name in $servers; do
        load=$(cut -d ' ' -f 1 /proc/loadavg)
        start "$name"
        # What a server takes before it has many viewers, its window of the stream included: that
        # is full after three quarters of a minute.
        watch 10 $((50 + seconds)) &
        few=$!
        sleep 45
        own=$(anonymous) tcp=$(sockets) objects=$(slab)
        count=$(((viewers + 9) / 10 * 10))
        watch "$count" $((seconds + 6)) &
        many=$!
        sleep 5
        before=$(ticks) began=$(date +%s%N)
        sleep $((seconds - 1))
        after=$(ticks) ended=$(date +%s%N)
        own=$(($(anonymous) - own)) tcp=$(($(sockets) - tcp)) objects=$(($(slab) - objects))
        # 1: not all got what they wanted; 3: the viewers were the limit. Both are in the figures.
        wait "$many" || test $? -ne 2 || { cat "$work/err-$count" >&2; exit 1; }
        kill "$few" 2>/dev/null || true
        wait "$few" 2>/dev/null || true
        stop
        satisfied=$(sed -n 's/^    "satisfied": \([0-9]*\),$/\1/p' "$work/out-$count")
        saturated=$(grep -c '"saturated": true' "$work/out-$count" || true)
        awk -v head="$round,$name,$count" -v tail="${satisfied:-0},$saturated,$load" \
            -v ticks=$((after - before)) -v hertz="$hertz" -v ns=$((ended - began)) -v n="$count" \
            -v own="$own" -v tcp="$tcp" -v objects="$objects" 'BEGIN {
                printf "%s,%.1f,%.0f,%.0f,%.0f,%s\n", head, ticks / hertz * 1e6 / (ns / 1e9) / n,
                    own * 1024 / n, tcp * 1024 / n, objects * 1024 / n, tail
            }' | tee -a "$figures"
    done
done

awk -F , '
    NR > 1 { k = $2; n[k]++; for (f = 4; f <= 7; f++) v[k, f, n[k]] = $f; missed[k] += $3 - $8; s[k] += $9 }
    function median(k, f, m, i, j, t, a) {
        m = n[k]
        for (i = 1; i <= m; i++) a[i] = v[k, f, i]
        for (i = 2; i <= m; i++)
            for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
        return m % 2 ? a[(m + 1) / 2] : (a[m / 2] + a[m / 2 + 1]) / 2
    }
    END {
        printf "%-12s %12s %12s %14s %12s %9s %10s\n", "server", "us/viewer-s", "own B", \
            "sockets B", "slab B", "unhappy", "saturated"
        for (k in n)
            printf "%-12s %12.1f %12.0f %14.0f %12.0f %9d %10d\n", k, median(k, 4), median(k, 5), \
                median(k, 6), median(k, 7), missed[k], s[k] | "sort"
    }' "$figures" | tee "$out/summary.txt"
