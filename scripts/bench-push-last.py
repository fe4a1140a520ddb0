#!/usr/bin/env python3
"""Measures the time from a chunk's arrival at the origin to the last of thousands of push viewers.

    scripts/bench-push-last.py -o DIR [--viewers 5000] [--seconds 10] [--headwater PROGRAM] [--streamgauge PROGRAM]

A stream of 100 kbit/s in chunks of 200 ms is stamped by its publisher. The origin has core 0, everything else core 1.
It runs twice. In the first run, viewers report how long after the publisher had sent a chunk they got it. In the
second run, perf(1) records when the origin wrote. This gives the time from the first to the last write of each chunk,
without the time that viewers add while they wait for a core of their own. Needs ffmpeg, and root and perf for the
second run. Takes twice --seconds, and half a minute.

Raw figures go to DIR/last*.json and DIR/last-viewers/, the table to DIR/last.md.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# System calls with which a server may write.
WRITES = ("write", "writev", "sendto", "sendmsg")
# Nothing is written for this long between two chunks, in seconds.
GAP = 0.05


def clip(path):
    done = subprocess.run(
        ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
         "testsrc2=size=320x180:rate=15:duration=20", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
         "-threads", "1", "-b:v", "100k", "-minrate", "100k", "-maxrate", "100k", "-bufsize", "100k",
         "-x264-params", "nal-hrd=cbr", "-g", "30", "-keyint_min", "30", "-sc_threshold", "0",
         "-movflags", "+faststart", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


def load(asked, url, folder):
    """Starts the viewers, and returns their process; each viewer reports about itself."""
    batch = -(-asked.viewers // 10)
    words = ["taskset", "-c", "1", str(asked.streamgauge), "viewers", url, "--batches", "10", "--batch-size", str(batch),
             "--interval", "200ms", "--duration", f"{asked.seconds}s", "--verify", "none", "--json", "-o", str(folder)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finish(process, seconds):
    try:
        said, _ = process.communicate(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit("the load does not end")
    if process.returncode not in (0, 1, 3):
        sys.exit(f"the load failed, exit status {process.returncode}")
    return json.loads(said)


def viewers(folder):
    """Returns times in milliseconds from when the publisher sent a chunk's last picture. A viewer's promptest
    chunk gives its position in the order of viewers; its mean lateness in comparison gives that of the other
    chunks. Chunks from before a viewer joined do not count."""
    typical, worst = [], []
    with (folder / "viewers.jsonl").open() as lines:
        for line in lines:
            viewer = json.loads(line)
            if viewer["delivery"] and viewer["late"]:
                promptest = viewer["delivery"]["min"] * 1e3
                typical.append(promptest + viewer["late"]["mean"] * 1e3)
                worst.append(promptest + viewer["late"]["max"] * 1e3)
    typical.sort()
    worst.sort()
    if not typical:
        sys.exit("no viewer got anything")
    return {"viewers": len(typical), "first_ms": typical[0], "median_ms": statistics.median(typical),
            "last_ms": typical[-1], "worst_p50_ms": statistics.median(worst),
            "worst_p99_ms": worst[int(len(worst) * 0.99)], "worst_ms": worst[-1]}


def writes(recording, wanted):
    """Returns the time from the first to the last write of each chunk that went to nearly all viewers, in ms."""
    text = subprocess.run(["perf", "script", "-i", str(recording), "-F", "time"], capture_output=True, text=True,
                          check=True).stdout
    times = sorted(float(found) for found in re.findall(r"(\d+\.\d+):", text))
    bursts, begun = [], 0
    for index in range(1, len(times) + 1):
        if index == len(times) or times[index] - times[index - 1] > GAP:
            if index - begun >= 0.9 * wanted:
                bursts.append({"writes": index - begun, "ms": (times[index - 1] - times[begun]) * 1e3})
            begun = index
    return bursts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--viewers", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--headwater", default=os.environ.get("HEADWATER", built / "headwater"))
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    work = Path(tempfile.mkdtemp(prefix="last-"))
    started = []
    try:
        clip(work / "low.mp4")
        (work / "headwater.toml").write_text('workers = 1\n[http]\nlisten = "127.0.0.1:0"\nmax_connections = 0\n'
                                             '[rtmp]\nlisten = "127.0.0.1:0"\n')
        log = (asked.out / "last.log").open("w")
        server = subprocess.Popen(["taskset", "-c", "0", asked.headwater, "serve", "--config", work / "headwater.toml"],
                                  stdout=subprocess.PIPE, stderr=log, text=True,
                                  env={**os.environ, "HEADWATER_LOG": "warn"})
        started.append(server)
        ports = dict(re.findall(r"(\w+)=\S*?:(\d+)", server.stdout.readline()))
        started.append(subprocess.Popen(["taskset", "-c", "1", asked.headwater, "publish", work / "low.mp4",
                                         f"rtmp://127.0.0.1:{ports['rtmp']}/live/last", "--loop", "--stamp"],
                                        stdout=log, stderr=log))
        time.sleep(3)
        url = f"ws://127.0.0.1:{ports['http']}/live/last/push"
        measure(asked, url, server.pid, work)
    finally:
        for program in reversed(started):
            program.terminate()
            try:
                program.wait(15)
            except subprocess.TimeoutExpired:
                program.kill()
        shutil.rmtree(work, ignore_errors=True)


def measure(asked, url, pid, work):
    folder = asked.out / "last-viewers"
    shutil.rmtree(folder, ignore_errors=True)
    whole = finish(load(asked, url, folder), asked.seconds)
    found = {**viewers(folder), "satisfied": whole["viewers"]["satisfied"], "stalls": whole["viewers"]["stalls"],
             "saturated": whole["generator"]["saturated"], "reasons": whole["generator"]["reasons"]}
    lines = ["| a chunk, mean: first viewer | median viewer | last viewer | the worst chunk: median viewer "
             "| 99 % of viewers | last viewer | got all of it | generator |", "|---|---|---|---|---|---|---|---|",
             f"| {found['first_ms']:.1f} ms | {found['median_ms']:.1f} ms | {found['last_ms']:.1f} ms "
             f"| {found['worst_p50_ms']:.1f} ms | {found['worst_p99_ms']:.1f} ms | {found['worst_ms']:.1f} ms "
             f"| {found['satisfied']} of {asked.viewers} | {'late' if found['saturated'] else 'in time'} |"]
    if shutil.which("perf"):
        recording = work / "perf.data"
        events = ",".join(f"syscalls:sys_exit_{name}" for name in WRITES)
        running = load(asked, url, work / "again")
        # All viewers have joined after two seconds.
        time.sleep(3)
        noted = subprocess.run(["perf", "record", "-q", "-e", events, "-p", str(pid), "-o", recording, "--",
                                "sleep", str(max(2, asked.seconds - 3))], capture_output=True, text=True, check=False)
        finish(running, asked.seconds)
        bursts = writes(recording, asked.viewers) if noted.returncode == 0 else []
        found["writes"] = bursts
        if bursts:
            spans = sorted(burst["ms"] for burst in bursts)
            lines += ["", f"The origin's writes of a chunk, first to last: median {statistics.median(spans):.1f} ms, "
                      f"99 % {spans[int(len(spans) * 0.99)]:.1f} ms, most {spans[-1]:.1f} ms, of {len(spans)} chunks."]
        else:
            lines += ["", f"perf noted nothing: {noted.stderr.strip()}"]
    (asked.out / "last.json").write_text(json.dumps(found, indent=1) + "\n")
    table = "\n".join(lines) + "\n"
    (asked.out / "last.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
