#!/usr/bin/env python3
"""Runs test programs of the workspace, several at a time.

Usage: scripts/run-tests.py LANES SECONDS light|heavy <BUILT

It runs the programs that leave others most of the machine, or those that do not (HEAVY). BUILT is the output of
`cargo test --no-run` with `--message-format=json-render-diagnostics`: this script builds nothing, so several of it
may run at once.

`cargo test` runs one program after the other, but most of ours wait for players and compute little. Each runs
in the folder in which cargo would run it, and its output is shown at its end. After SECONDS, programs that
still run are ended, and their output so far is shown. The exit status is 1 if any of them failed.
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

# These take most of the processor time of all programs, start many servers, or generate load and must not wait for a
# processor themselves. The first take longest. They are CRATE/PROGRAM.
HEAVY = ["headwater/webrtc", "headwater/cluster", "headwater/bad_input", "headwater/foreign", "streamgauge/studies",
         "streamgauge/agents", "headwater/push", "headwater/ladder", "streamgauge/nodes", "headwater/backup", "headwater/store",
         "streamgauge/players", "headwater/headwater", "streamgauge/load", "headwater/vod"]

# These take long, mostly waiting, the first longest. If they began last, the whole run would have to
# wait for them.
FIRST = [*HEAVY, "media/codec_records", "headwater/files", "media/mp4_corpus"]

# Prints each test's time. A stable compiler's test harness does so where RUSTC_BOOTSTRAP is set.
TIMES = ["-Zunstable-options", "--report-time"]


def programs(lines):
    """Yields each test program: its folder, its name as CRATE/PROGRAM, and the program."""
    for line in lines:
        built = json.loads(line)
        is_test = built.get("executable") and built["profile"]["test"] and built["target"]["test"]
        if is_test and not {"bench", "example"} & set(built["target"]["kind"]):
            folder = os.path.dirname(built["manifest_path"])
            yield folder, f"{os.path.basename(folder)}/{built['target']['name']}", built["executable"]


running = set()


def kill(process):
    """Ends a program and all processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def took(where, program, line):
    """Appends a test's time to the file TEST_TIMES, if there is one; returns the test's line without it."""
    if "TEST_TIMES" in os.environ:
        name = os.path.basename(program).rsplit("-", 1)[0]
        with open(os.environ["TEST_TIMES"], "a") as file:
            file.write(f"{line[3]} {where.removeprefix('crates/')} {name} {line[2]}\n")
    return line[1]


def run(folder, program, deadline):
    """Runs one program; returns its output, and whether it failed."""
    # As under cargo: some tests use it to find files of their crate.
    environment = os.environ | {"CARGO_MANIFEST_DIR": folder, "RUSTC_BOOTSTRAP": "1"}
    # A process group of its own, but not a session: some kernels share the processor among
    # sessions, which would make nice levels meaningless.
    process = subprocess.Popen(
        [program, *TIMES], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        process_group=0,
    )
    running.add(process)
    try:
        printed, _ = process.communicate(timeout=max(0, deadline - time.monotonic()))
        ended = f"ended with {process.returncode}"
    except subprocess.TimeoutExpired:
        kill(process)
        printed, _ = process.communicate()
        ended = "had not ended when its time was over"
    running.remove(process)
    where = os.path.relpath(folder)
    # Readers of the harness's lines expect them without times.
    printed = re.sub(r"^(test (.+) \.\.\. \w+) <([\d.]+)s>$", lambda line: took(where, program, line),
                     printed, flags=re.MULTILINE)
    print(f"\n     Running {os.path.basename(program)} in {where}\n{printed}", flush=True)
    if process.returncode != 0:
        print(f"error: {os.path.basename(program)} {ended}", flush=True)
    return process.returncode != 0


def stop(number, _):
    """Ends the programs too: their groups do not get the signal that ends this script."""
    for process in list(running):
        kill(process)
    os._exit(128 + number)


def main():
    lanes, seconds, which = sys.argv[1:]
    found = [test for test in programs(sys.stdin) if (test[1] in HEAVY) == (which == "heavy")]
    order = {name: place for place, name in enumerate(FIRST)}
    found.sort(key=lambda test: (order.get(test[1], len(FIRST)), test[2]))
    deadline = time.monotonic() + int(seconds)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    with concurrent.futures.ThreadPoolExecutor(int(lanes)) as pool:
        failed = sum(pool.map(lambda test: run(test[0], test[2], deadline), found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
