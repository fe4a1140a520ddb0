#!/bin/sh
# streamgauge http as a load generator, against wrk and vegeta: requests and bytes by second of the
# generator's own processor time. nginx has core 0 and the generators, one after the other, core 1.
#
#   scripts/bench-generator.sh [ROUNDS] [SECONDS]
#
# wrk and nginx come from Debian. VEGETA names the vegeta to use; if not given, it is built in a
# temporary folder (Go). Raw figures go to lab/runs/DATE-generator/.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-5}
seconds=${2:-10}
port=${PORT:-18473}
out=lab/runs/$(date -u +%Y-%m-%d)-generator
mkdir -p "$out"
work=$(mktemp -d)
nginx_pid=
trap 'test -z "$nginx_pid" || kill "$nginx_pid" 2>/dev/null; rm -rf "$work"' EXIT INT TERM

cargo build --release -q -p streamgauge
gauge=${CARGO_TARGET_DIR:-target}/release/streamgauge

vegeta=${VEGETA:-}
if [ -z "$vegeta" ]; then
    # A module that names the tool: `go install …@latest` needs a list of versions, which not
    # every proxy has.
    mkdir "$work/tools"
    cat > "$work/tools/tools.go" <<'GO'
//go:build tools

package tools

import _ "github.com/tsenart/vegeta/v12"
GO
    printf 'module tools\n\ngo 1.22\n\nrequire github.com/tsenart/vegeta/v12 v12.12.0\n' \
        > "$work/tools/go.mod"
    (cd "$work/tools" && go mod tidy 2> /dev/null && go build -o vegeta github.com/tsenart/vegeta/v12)
    vegeta=$work/tools/vegeta
fi

mkdir "$work/www" "$work/t"
head -c 4096 /dev/urandom > "$work/www/4k"
head -c 65536 /dev/urandom > "$work/www/64k"
head -c 1048576 /dev/urandom > "$work/www/1m"
cat > "$work/nginx.conf" <<NGINX
daemon off; master_process off; pid $work/pid; error_log $work/error.log;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
    open_file_cache max=100;
    client_body_temp_path $work/t; proxy_temp_path $work/t; fastcgi_temp_path $work/t;
    uwsgi_temp_path $work/t; scgi_temp_path $work/t;
    server { listen 127.0.0.1:$port; root $work/www; }
}
NGINX
taskset -c 0 nginx -e "$work/error.log" -c "$work/nginx.conf" &
nginx_pid=$!
until curl -s -o /dev/null "http://127.0.0.1:$port/4k"; do sleep 0.1; done

{
    uname -srm
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "cores $(nproc), load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
    rustc --version
    nginx -v 2>&1
    wrk -v 2>&1 | head -n 1
    "$vegeta" -version | head -n 1
    git rev-parse HEAD
} > "$out/machine.txt"

# Runs a command on core 1; its processor time, user and system, goes to $work/time.
measured() {
    /usr/bin/time -q -f '%U %S' -o "$work/time" taskset -c 1 "$@"
}

# One run: TOOL CASE FILE CONNECTIONS RATE. Prints the number of answers.
run() {
    url=http://127.0.0.1:$port/$3
    case $1 in
    streamgauge)
        if [ "$5" = 0 ]; then pace="--connections $4"; else pace="--rate $5"; fi
        # shellcheck disable=SC2086 # two words
        measured "$gauge" http "$url" $pace --threads 1 --duration "${seconds}s" --json \
            > "$work/out" || test $? = 3
        sed -n 's/^    "responses": \([0-9]*\),$/\1/p' "$work/out" | head -n 1
        ;;
    wrk)
        measured wrk -t 1 -c "$4" -d "${seconds}s" "$url" > "$work/out"
        sed -n 's/^ *\([0-9]*\) requests in .*/\1/p' "$work/out"
        ;;
    vegeta)
        if [ "$5" = 0 ]; then pace="-rate 0 -max-workers $4"; else pace="-rate $5"; fi
        # shellcheck disable=SC2086 # several words
        echo "GET $url" | measured "$vegeta" attack $pace -max-body 0 \
            -duration "${seconds}s" -output "$work/results"
        "$vegeta" report -type json "$work/results" | sed -n 's/.*"200":\([0-9]*\).*/\1/p'
        ;;
    esac
}

figures=$out/figures.csv
echo "round,case,tool,answers,bytes,seconds,cpu_user,cpu_system,load" > "$figures"
one() {
    load=$(cut -d ' ' -f 1 /proc/loadavg)
    answers=$(run "$2" "$1" "$3" "$5" "$6")
    echo "$round,$1,$2,$answers,$((answers * $4)),$seconds,$(tr ' ' , < "$work/time"),$load" \
        | tee -a "$figures"
}
for round in $(seq "$rounds"); do
    for tool in streamgauge wrk vegeta; do
        one closed-4KiB-16 $tool 4k 4096 16 0
        one closed-64KiB-16 $tool 64k 65536 16 0
        one closed-1MiB-16 $tool 1m 1048576 16 0
    done
    # wrk has no open loop.
    for tool in streamgauge vegeta; do
        one open-4KiB-5000 $tool 4k 4096 0 5000
        one open-64KiB-1000 $tool 64k 65536 0 1000
    done
done

# The median of each case and tool.
awk -F , 'NR > 1 { cpu = $7 + $8; print $2 "," $3 "," $4 / $6 "," $4 / cpu "," $5 / cpu / 1e6 }' \
    "$figures" | sort -t , -k 1,2 -k 4n | awk -F , '
    function flush() {
        if (n) printf "%-16s %-12s %10.0f %14.0f %12.0f\n", c, t, r[int((n+1)/2)], q[int((n+1)/2)], b[int((n+1)/2)]
        n = 0
    }
    BEGIN { printf "%-16s %-12s %10s %14s %12s\n", "case", "tool", "answers/s", "answers/CPU-s", "MB/CPU-s" }
    $1 != c || $2 != t { flush(); c = $1; t = $2 }
    { n++; r[n] = $3; q[n] = $4; b[n] = $5 }
    END { flush() }' | tee "$out/summary.txt"
