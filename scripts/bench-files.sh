#!/bin/sh
# Files from disk, measured beside nginx: the server on core 0, the load on core 1, turn and turn
# about.
#
#   scripts/bench-files.sh [ROUNDS] [SECONDS] [FOLDER]
#
# Wants nginx, wrk and python3, and a machine that does nothing else. Writes to FOLDER, by default
# lab/runs/DATE-files:
#   ranges.csv   ranges of 64 KiB to 4 MiB over 50 kept connections, as fast as they go
#   small.csv    a 4 KiB file, 50 connections, one request at a time and 16
#   cold-*.csv   each answer's latency at a fixed rate from a file in memory, alone, beside a download
#                of a file in memory, and beside one of a file that is not (benches/files.rs)
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-4}
seconds=${2:-6}
out=${3:-$PWD/lab/runs/$(date -u +%Y-%m-%d)-files}
mkdir -p "$out"
cargo build -q --release -p headwater --bin headwater
headwater=${CARGO_TARGET_DIR:-target}/release/headwater

work=$(mktemp -d)
mkdir "$work/media"
# Not as a group: only what was started here.
started=
stop() {
    for process in $started; do kill "$process" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

head -c 268435456 /dev/urandom > "$work/media/large.bin"
head -c 4096 /dev/urandom > "$work/media/small.bin"
sync

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# headwater
taskset -c 0 "$headwater" serve --workers 1 --vod "$work/media" --http 127.0.0.1:0 \
    --rtmp 127.0.0.1:0 > "$work/ready" 2> "$work/headwater.log" &
headwater_id=$!
started="$started $headwater_id"
while ! grep -q ready "$work/ready"; do sleep 0.1; done
headwater_port=$(sed 's/.*http=127.0.0.1:\([0-9]*\).*/\1/' "$work/ready")

# nginx, as its documentation has it for large files
nginx_port=$(free_port)
cat > "$work/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $work/nginx.pid; error_log $work/nginx.log;
user $(id -un);
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
    client_body_temp_path $work; proxy_temp_path $work; fastcgi_temp_path $work;
    uwsgi_temp_path $work; scgi_temp_path $work;
    server { listen 127.0.0.1:$nginx_port; location /vod/ { alias $work/media/; } }
}
CONF
taskset -c 0 nginx -p "$work" -c "$work/nginx.conf" &
nginx_id=$!
started="$started $nginx_id"
while ! [ -s "$work/nginx.pid" ] || ! pgrep -P "$nginx_id" > /dev/null; do sleep 0.1; done
nginx_id=$(pgrep -P "$nginx_id")

{
    uname -srm
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    nginx -v 2>&1
    wrk -v 2>&1 | head -n 1
    rustc --version
    git rev-parse HEAD
    uptime
} > "$out/machine.txt" || true

cat > "$work/load.lua" <<'LUA'
-- Requests for RANGE bytes here and there in a file of 256 MiB, or for the whole of a small one;
-- DEPTH of them in a row.
local range, depth = tonumber(os.getenv("RANGE")), tonumber(os.getenv("DEPTH"))
local requests, at = {}, 0
function init()
    for i = 1, 64 do
        local one
        if range > 0 then
            local from = (i * 7919 * 65536) % (268435456 - range)
            local header = { ["Range"] = "bytes=" .. from .. "-" .. (from + range - 1) }
            one = wrk.format("GET", "/vod/large.bin", header)
        else
            one = wrk.format("GET", "/vod/small.bin")
        end
        requests[i] = string.rep(one, depth)
    end
end
function request()
    at = at % #requests + 1
    return requests[at]
end
function done(summary, latency)
    local errors = summary.errors
    io.write(string.format("RESULT %d,%d,%d,%d,%d,%d,%d\n",
        summary.requests, summary.bytes, summary.duration,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency:percentile(50), latency:percentile(99), latency.max))
end
LUA

# Processor ticks (of 10 ms) a process has used.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }
# What the kernel's receiving side dropped for want of room.
drops() {
    awk '$1 == "TcpExt:" { if (!n) { n = split($0, names) } else {
        for (i = 2; i <= n; i++) if (names[i] == "PruneCalled" || names[i] == "TCPRcvQDrop") sum += $i
    } } END { print sum + 0 }' /proc/net/netstat
}

# SERVER PROCESS PORT RANGE DEPTH FILE: one measurement, one line.
measure() {
    before=$(ticks "$2")
    dropped=$(drops)
    result=$(RANGE=$4 DEPTH=$5 taskset -c 1 wrk -t 1 -c 50 -d "${seconds}s" --latency \
        -s "$work/load.lua" "http://127.0.0.1:$3/" | sed -n 's/^RESULT //p')
    used=$(($(ticks "$2") - before))
    echo "$round,$1,$4,$5,$result,${used}0,$(($(drops) - dropped))" | tee -a "$6"
}

columns=round,server,range,depth,requests,bytes,duration_us,errors,p50_us,p99_us,max_us,cpu_ms,receive_drops
echo $columns > "$out/ranges.csv"
echo $columns > "$out/small.csv"
for round in $(seq "$rounds"); do
    for range in 65536 262144 1048576 4194304; do
        measure nginx "$nginx_id" "$nginx_port" $range 1 "$out/ranges.csv"
        measure headwater "$headwater_id" "$headwater_port" $range 1 "$out/ranges.csv"
    done
    for depth in 1 16; do
        measure nginx "$nginx_id" "$nginx_port" 0 $depth "$out/small.csv"
        measure headwater "$headwater_id" "$headwater_port" 0 $depth "$out/small.csv"
    done
done

for round in $(seq "$rounds"); do
    for beside in nothing warm cold; do
        for server in nginx headwater; do
            [ $server = nginx ] && port=$nginx_port || port=$headwater_port
            cargo bench -q -p headwater --bench files -- --address "127.0.0.1:$port" \
                --folder "$work/media" --beside $beside --seconds "$seconds" --core 1 \
                --csv "$out/cold-$server-$beside-$round.csv" | sed "s/^/$round $server $beside /" |
                tee -a "$work/cold.txt"
        done
    done
done
cp "$work/cold.txt" "$out/cold.txt"

python3 - "$out" <<'PYTHON'
import collections, csv, statistics, sys
out = sys.argv[1]
def rows(name):
    groups = collections.defaultdict(list)
    for row in csv.DictReader(open(f"{out}/{name}")):
        groups[int(row["range"]), int(row["depth"]), row["server"]].append(row)
    return groups
with open(f"{out}/summary.txt", "w") as summary:
    for (size, _, server), group in sorted(rows("ranges.csv").items()):
        cost = [float(r["cpu_ms"]) / 1e3 / (float(r["bytes"]) / 1e9) for r in group]
        rate = [float(r["bytes"]) / float(r["duration_us"]) for r in group]
        print(f"{size >> 10:5} KiB  {server:9}  {statistics.median(cost):.3f} CPU s/GB "
              f"({min(cost):.3f}-{max(cost):.3f})  {statistics.median(rate):7.0f} MB/s", file=summary)
    for (_, depth, server), group in sorted(rows("small.csv").items()):
        rate = [float(r["requests"]) / float(r["duration_us"]) * 1e6 for r in group]
        cost = [float(r["cpu_ms"]) * 1e3 / float(r["requests"]) for r in group]
        print(f"4 KiB x{depth:<2}  {server:9}  {statistics.median(rate):7.0f} requests/s "
              f"({min(rate):.0f}-{max(rate):.0f})  {statistics.median(cost):.2f} CPU us each", file=summary)
print(open(f"{out}/summary.txt").read(), end="")
PYTHON
