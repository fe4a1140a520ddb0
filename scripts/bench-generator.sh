#!/bin/sh
# Compares streamgauge http as a load generator with wrk and vegeta: requests and bytes per second
# of the generator's own processor time. nginx has core 0. The generators have core 1, one at a
# time; every other round runs them in reverse order. Prints medians of the rounds, and medians of
# the rounds' ratios, which compare the runs of one round with each other.
#
#   scripts/bench-generator.sh [ROUNDS] [SECONDS] [FOLDER]
#
# wrk and nginx come from Debian. VEGETA names the vegeta to use; by default it is built in a
# temporary folder (Go). STREAMGAUGE names the streamgauge; by default it is built for release. Raw
# figures go to FOLDER, by default lab/runs/DATE-generator/.
set -eu
cd "$(dirname "$0")/.."
. scripts/bench-common.sh
rounds=${1:-5}
seconds=${2:-10}
out=${3:-lab/runs/$(date -u +%Y-%m-%d)-generator}
port=${PORT:-$(free_port)}
mkdir -p "$out"
work=$(mktemp -d)
nginx_pid=
trap 'test -z "$nginx_pid" || kill "$nginx_pid" 2>/dev/null; rm -rf "$work"' EXIT INT TERM

gauge=${STREAMGAUGE:-}
if [ -z "$gauge" ]; then
    cargo build --release -q -p streamgauge
    gauge=${CARGO_TARGET_DIR:-target}/release/streamgauge
fi

vegeta=${VEGETA:-}
if [ -z "$vegeta" ]; then
    # This module names the tool, because `go install …@latest` needs a list of versions, which not
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

mkdir "$work/www"
head -c 4096 /dev/urandom > "$work/www/4k"
head -c 65536 /dev/urandom > "$work/www/64k"
head -c 1048576 /dev/urandom > "$work/www/1m"
start_nginx "$port" "$work/www" "$work"

{
    machine
    nginx -v 2>&1
    wrk -v 2>&1 | head -n 1
    "$vegeta" -version | head -n 1
} > "$out/machine.txt"

# Runs a command on core 1. Its processor time, user and system, goes to $work/time.
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

# One round of a case, forwards or backwards: CASE FILE BYTES CONNECTIONS RATE TOOL…
case_of() {
    name=$1 file=$2 bytes=$3 connections=$4 rate=$5
    shift 5
    tools=$*
    if [ $((round % 2)) = 0 ]; then
        tools=
        for tool in "$@"; do tools="$tool $tools"; done
    fi
    for tool in $tools; do one "$name" "$tool" "$file" "$bytes" "$connections" "$rate"; done
}
for round in $(seq "$rounds"); do
    case_of closed-4KiB-16 4k 4096 16 0 streamgauge wrk vegeta
    case_of closed-64KiB-16 64k 65536 16 0 streamgauge wrk vegeta
    case_of closed-1MiB-16 1m 1048576 16 0 streamgauge wrk vegeta
    # wrk cannot send at a fixed rate.
    case_of open-4KiB-5000 4k 4096 0 5000 streamgauge vegeta
    case_of open-64KiB-1000 64k 65536 0 1000 streamgauge vegeta
done

# Medians, and streamgauge compared with each other generator, in answers per second of processor
# time. In one case all answers have the same length, so the ratio of bytes is the same.
python3 - "$figures" <<'PYTHON' | tee "$out/summary.txt"
import csv, statistics, sys

runs = {}
with open(sys.argv[1], newline="") as file:
    for row in csv.DictReader(file):
        cpu = float(row["cpu_user"]) + float(row["cpu_system"])
        answers, size = int(row["answers"]), int(row["bytes"])
        figures = answers / float(row["seconds"]), answers / cpu, size / cpu / 1e6
        runs.setdefault(row["case"], {}).setdefault(row["tool"], {})[row["round"]] = figures

line = "{:<16} {:<12} {:>10} {:>14} {:>12} {:>24}"
print(line.format("case", "tool", "answers/s", "answers/CPU-s", "MB/CPU-s", "streamgauge by it (range)"))
for case, tools in runs.items():
    for tool, rounds in tools.items():
        rate, by_cpu, bytes_by_cpu = (statistics.median(column) for column in zip(*rounds.values()))
        ratios = [tools["streamgauge"][round][1] / rounds[round][1] for round in rounds]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        ratio = "" if tool == "streamgauge" else ratio
        print(line.format(case, tool, f"{rate:.0f}", f"{by_cpu:.0f}", f"{bytes_by_cpu:.0f}", ratio).rstrip())
PYTHON
