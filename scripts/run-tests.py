#!/usr/bin/env python3
"""Runs test programs of the workspace, several at a time.

Usage: scripts/run-tests.py LANES SECONDS light|all CLAIMS <BUILT

It runs the programs that leave others most of the machine (`light`), or all, beginning with those that do not (HEAVY).
Several of this script may run at once: each program runs once, by the first that makes its file in the folder CLAIMS.
BUILT is the output of `cargo test --no-run` with `--message-format=json-render-diagnostics`: this script builds nothing.

`cargo test` runs one program after the other, but most of ours wait for players and compute little. Each runs
in the folder in which cargo would run it, and its output is shown at its end. After SECONDS, programs that
still run are ended, and their output so far is shown. The exit status is 1 if any of them failed.

With HOLD_UP=SECONDS in the environment, one process of each program after the other is stopped for so long: a busy machine
runs one process of a test late while the others go on. Tests that such a stop fails depend on luck.
"""

import concurrent.futures
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

# These take most of the processor time of all programs, start many servers, or generate load and must not wait for a
# processor themselves. The first take longest. They are CRATE/PROGRAM.
HEAVY = ["headwater/webrtc", "headwater/cluster", "headwater/bad_input", "headwater/foreign", "streamgauge/studies",
         "streamgauge/agents", "headwater/push", "headwater/ladder", "streamgauge/nodes", "headwater/access", "headwater/backup",
         "headwater/store", "streamgauge/players", "headwater/headwater", "streamgauge/load", "headwater/acme",
         "headwater/vod"]

# These take long, mostly waiting, the first longest. If they began last, the whole run would have to
# wait for them.
FIRST = [*HEAVY, "media/codec_records", "headwater/files", "media/mp4_corpus"]

# A test that stops a process itself may find that it runs again: such a failure is one of this option.
HOLD_UP = float(os.environ.get("HOLD_UP", "0"))

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


def claim(claims, program):
    """Whether no other has claimed this program."""
    try:
        open(os.path.join(claims, os.path.basename(program)), "x").close()
        return True
    except FileExistsError:
        return False


def below(process):
    """Returns the processes that a process has started, and those that they have."""
    listed = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True).stdout
    children = [int(line) for line in listed.split()]
    return children + [each for child in children for each in below(child)]


def hold_up(process, told):
    """Stops one process after the other until the program ends. Appends to `told` when, and which."""
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(random.uniform(1, 3))
        one = random.choice([process.pid, *below(process.pid)])
        try:
            with open(f"/proc/{one}/stat") as stat, open(f"/proc/{one}/cmdline") as command:
                # A process that its test has stopped is left alone.
                if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                    continue
                told.append(f"held up at {time.monotonic() - began:.1f} s: {command.read().replace(chr(0), ' ')}")
            os.kill(one, signal.SIGSTOP)
            time.sleep(HOLD_UP)
            os.kill(one, signal.SIGCONT)
        except OSError:
            # It has ended.
            continue


def run(folder, program, deadline):
    """Runs one program, and prints its output; returns whether it failed."""
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
    held_up = []
    if HOLD_UP:
        threading.Thread(target=hold_up, args=(process, held_up), daemon=True).start()
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
        print("".join(f"{line}\n" for line in held_up), end="")
        print(f"error: {os.path.basename(program)} {ended}", flush=True)
    return process.returncode != 0


def stop(number, _):
    """Ends the programs too: their groups do not get the signal that ends this script."""
    for process in list(running):
        kill(process)
    os._exit(128 + number)


def main():
    lanes, seconds, which, claims = sys.argv[1:]
    found = [test for test in programs(sys.stdin) if which == "all" or test[1] not in HEAVY]
    order = {name: place for place, name in enumerate(FIRST)}
    found.sort(key=lambda test: (order.get(test[1], len(FIRST)), test[2]))
    deadline = time.monotonic() + int(seconds)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    with concurrent.futures.ThreadPoolExecutor(int(lanes)) as pool:
        failed = sum(pool.map(
            lambda test: claim(claims, test[2]) and run(test[0], test[2], deadline), found))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
