#!/bin/sh
# Measures how the download of a file that is not in memory affects the viewers of a file that is,
# compared with nginx. The server is on core 0, the load on core 1; the servers take turns
# (benches/files.rs).
#
#   scripts/bench-files.sh [ROUNDS] [SECONDS] [FOLDER]
#
# Needs nginx and python3, and an otherwise idle machine. FOLDER, by default lab/runs/DATE-files,
# gets the latency of each answer at a fixed rate from a file in memory: alone, beside a download of
# a file in memory, and beside a download of a file that is not (cold-SERVER-BESIDE-ROUND.csv).
# cold.txt has all rounds. For ranges and small files at full speed, see
# `streamgauge run media-plane`.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
rounds=${1:-4}
seconds=${2:-6}
out=${3:-$PWD/lab/runs/$(date -u +%Y-%m-%d)-files}
mkdir -p "$out"
cargo build -q --release -p headwater --bin headwater
headwater=${CARGO_TARGET_DIR:-target}/release/headwater

work=$(mktemp -d)
headwater_pid=
nginx_pid=
stop() {
    for pid in $headwater_pid $nginx_pid; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM

# Both servers serve the file below /vod/.
mkdir -p "$work/root/vod"
taskset -c 0 "$headwater" serve --workers 1 --vod "$work/root/vod" --http 127.0.0.1:0 \
    --rtmp 127.0.0.1:0 > "$work/ready" 2> "$work/headwater.log" &
headwater_pid=$!
while ! grep -q ready "$work/ready"; do
    kill -0 "$headwater_pid"
    sleep 0.1
done
headwater_port=$(sed 's/.*http=127.0.0.1:\([0-9]*\).*/\1/' "$work/ready")
nginx_port=$(free_port)
start_nginx "$nginx_port" "$work/root" "$work"
{
    machine
    nginx -v 2>&1
} > "$out/machine.txt"

: > "$out/cold.txt"
for round in $(seq "$rounds"); do
    for beside in nothing warm cold; do
        for server in nginx headwater; do
            [ $server = nginx ] && port=$nginx_port || port=$headwater_port
            cargo bench -q -p headwater --bench files -- --address "127.0.0.1:$port" \
                --folder "$work/root/vod" --beside $beside --seconds "$seconds" --core 1 \
                --csv "$out/cold-$server-$beside-$round.csv" | sed "s/^/$round $server $beside /" |
                tee -a "$out/cold.txt"
        done
    done
done
