#!/bin/sh
# Draws the tables of docs/studies.md, and the figures in other documents, from the studies' runs in
# lab/runs.
set -eu
cd "$(dirname "$0")/.."

# Older unpacked runs may no longer be in lab/runs.
rm -rf target/runs/*-study-*
scripts/runs.sh unpack lab/runs/*-study-*/
cargo run --release -p streamgauge -- report target/runs/*-study-*/ -o target/report --into docs/studies.md

# figure NAME TITLE: copies the figure with this title to docs/images/NAME.svg.
figure() {
    drawn=$(grep -F "![$2](" target/report/report.md | sed 's/.*](\(.*\))$/\1/')
    test -n "$drawn" || { echo "$0: no figure is called: $2" >&2; exit 1; }
    cp "target/report/$drawn" "docs/images/$1.svg"
}

figure study-a-100 'Latency by percentile at a constant rate (Figures 9 and 10): 100/s'
figure study-a-1000 'Latency by percentile at a constant rate (Figures 9 and 10): 1,000/s'
figure study-a-rate '99th percentile against the rate, up to saturation'
figure study-b-link-60 'Network speed, on a link of 700 Mbit/s: 1,200 clients, 60 s'
figure study-b-link 'Network speed, on a link of 700 Mbit/s: 1,200 clients, 300 s'
figure study-b-link-600 'Network speed, on a link of 700 Mbit/s: 1,200 clients, 600 s'
figure study-c-pull 'Mean bit rate against clients, pull (Figure 11)'
figure study-c-push 'Mean bit rate against clients, push (Figure 12)'
figure study-d-parts 'Mean time of a part against clients'
figure study-d-processors 'Processors of the server against clients, HLS'
figure study-d-bytes 'Bytes out over time, low-latency HLS: 2,000 clients'
figure study-e-rate 'Requests a second, 20,000 over ten connections that are kept'
figure study-e-latency 'Latency by percentile, 20,000 requests over ten connections'
