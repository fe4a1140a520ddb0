#!/usr/bin/env python3
"""Runs test programs of the workspace, several at a time.

Usage: scripts/run-tests.py LANES SECONDS [--but] CRATE... <BUILT

Those of these crates, or of all but these. BUILT is what `cargo test --no-run` says of them with
`--message-format=json-render-diagnostics`: nothing is built here, so that several of us may run at once.

`cargo test` runs one after the other, and most of ours wait for players rather than compute. They are
started where it starts them, and what each prints is shown at its end. After SECONDS whatever still runs is
ended, and what it has printed until then is shown. The exit status is 1 if any of them failed.
"""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

# They take long, mostly to wait: at the end all others would have to wait for them.
FIRST = {"bad_input", "foreign"}

# Has each test's time printed. A stable compiler's test harness does so where RUSTC_BOOTSTRAP is set.
TIMES = ["-Zunstable-options", "--report-time"]


def programs(lines, chosen):
    """The folder of each test program of the crates that are chosen, its name, and the program."""
    for line in lines:
        built = json.loads(line)
        is_test = built.get("executable") and built["profile"]["test"] and built["target"]["test"]
        if is_test and not {"bench", "example"} & set(built["target"]["kind"]):
            folder = os.path.dirname(built["manifest_path"])
            if chosen(os.path.basename(folder)):
                yield folder, built["target"]["name"], built["executable"]


running = set()


def kill(process):
    """Ends a program and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def took(where, program, line):
    """Notes a test's time in the file TEST_TIMES, if there is one; its line without it."""
    if "TEST_TIMES" in os.environ:
        name = os.path.basename(program).rsplit("-", 1)[0]
        with open(os.environ["TEST_TIMES"], "a") as file:
            file.write(f"{line[3]} {where.removeprefix('crates/')} {name} {line[2]}\n")
    return line[1]


def run(folder, program, deadline):
    """Runs one of them; what it printed, and whether it failed."""
    # As under cargo: some tests look for files of their crate by it.
    environment = os.environ | {"CARGO_MANIFEST_DIR": folder, "RUSTC_BOOTSTRAP": "1"}
    # A group of its own, not a session: some kernels share the processor out by session, which would make
    # nice levels meaningless.
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
    # Whoever reads the harness's lines expects them without times.
    printed = re.sub(r"^(test (.+) \.\.\. \w+) <([\d.]+)s>$", lambda line: took(where, program, line),
                     printed, flags=re.MULTILINE)
    print(f"\n     Running {os.path.basename(program)} in {where}\n{printed}", flush=True)
    if process.returncode != 0:
        print(f"error: {os.path.basename(program)} {ended}", flush=True)
    return process.returncode != 0


def stop(number, _):
    """Their groups do not hear what ends ours."""
    for process in list(running):
        kill(process)
    os._exit(128 + number)


def main():
    lanes, seconds, *crates = sys.argv[1:]
    but = crates[0] == "--but"
    found = list(programs(sys.stdin, lambda crate: (crate in crates) != but))
    # From the end of the alphabet: what takes long is there.
    found.sort(key=lambda test: (test[1] in FIRST, test[2]), reverse=True)
    deadline = time.monotonic() + int(seconds)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    with concurrent.futures.ThreadPoolExecutor(int(lanes)) as pool:
        failed = sum(pool.map(lambda test: run(test[0], test[2], deadline), found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
