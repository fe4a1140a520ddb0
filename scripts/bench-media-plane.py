#!/usr/bin/env python3
"""Measures what an answer costs the origin, nginx and the bare kernel in processor time.

    scripts/bench-media-plane.py [-o DIR] [--rounds N] [--case NAME]... [--load NAME]... [--before PROGRAM]

Each server has processor 0, the load has processor 1. The servers answer in turn in the same run. Processor
time is that of the server's process: user and system time of all its threads, in nanoseconds. The table has
the medians in microseconds an answer. Two loads are made: wrk, which sleeps while it waits, and streamgauge
with --busy-poll, which does not. "limit" is `baseline limit`: the same bytes by sendfile, without HTTP.

Needs nginx, wrk, two processors and an otherwise idle machine. Takes less than five minutes. --before adds another
build of the origin. DIR gets the figure of each round (rounds.csv) and the table (table.md).
Without HEADWATER, STREAMGAUGE and BASELINE in the environment, the programs of the release build are measured.
"""

import argparse
import csv
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
KIB = 1024
MIB = 1024 * KIB
LARGE = 256 * MIB
WHOLE = 64 * MIB
# Seconds of a load in a round. wrk takes whole seconds.
WRK_SECONDS = 1
BUSY_SECONDS = 0.5
# Time limit for a server to be ready, and for a load to end, in seconds.
LIMIT = 60

# Name, bytes an answer, connections, requests sent at once, and the goal as a part of nginx's time. Whole files
# have few connections, so that each gets some answers in a short round.
CASES = [
    ("4 KiB", 4 * KIB, 50, 1, 0.75),
    ("4 KiB, 16 pipelined", 4 * KIB, 50, 16, 0.4),
    ("64 KiB", 64 * KIB, 50, 1, 0.9),
    ("256 KiB", 256 * KIB, 50, 1, 1.0),
    ("1 MiB", MIB, 50, 1, 1.0),
    ("4 MiB", 4 * MIB, 50, 1, 1.0),
    ("64 MiB, whole", WHOLE, 4, 1, 1.0),
]

# The ranges come from all over the file, as streamgauge's do.
WRK_SCRIPT = """
local size, length = {size}, {length}
request = function()
    local from = math.random(0, length // size - 1) * size
    return wrk.format("GET", nil, {{ ["Range"] = ("bytes=%d-%d"):format(from, from + size - 1) }})
end
""".replace("length // size", "math.floor(length / size)")

NGINX = """
daemon off; master_process off; pid {work}/nginx.pid; error_log {work}/nginx.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile on; tcp_nopush off; keepalive_requests 1000000000; open_file_cache max=100;
    client_body_temp_path {work}; proxy_temp_path {work};
    fastcgi_temp_path {work}; uwsgi_temp_path {work}; scgi_temp_path {work};
    server {{ listen 127.0.0.1:{port}; root {work}/root; }}
}}
"""


def processor_time(pid):
    """User and system time of a process with all its threads, in seconds."""
    # The clock of another process: clock_getcpuclockid(3) makes its identifier this way.
    return time.clock_gettime((~pid << 3) | 2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Servers:
    """The servers of a run. They end with it."""

    def __init__(self, work, programs):
        self.work, self.programs, self.started = work, programs, []

    def start(self, name, command):
        log = open(self.work / f"{name}.log", "w")
        process = subprocess.Popen(
            ["taskset", "-c", "0", *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.started.append(process)
        return process

    def stop(self):
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait()

    def ready(self, name, process, pattern):
        """What a server says when it is ready. If it is not in time, it is ended, and so is the script."""
        timer = threading.Timer(LIMIT, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                if found := re.search(pattern, line):
                    return found[1]
        finally:
            timer.cancel()
        sys.exit(f"{name} is not ready: {(self.work / f'{name}.log').read_text()}")

    def headwater(self, name, program):
        vod = ["--vod", self.work / "root" / "vod", "--workers", "1"]
        listen = ["--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0", "--webrtc", "127.0.0.1:0"]
        process = self.start(name, [program, "serve", *vod, *listen])
        address = self.ready(name, process, r"ready http=(\S+)")
        return process.pid, f"http://{address}"

    def nginx(self):
        port = free_port()
        config = self.work / "nginx.conf"
        config.write_text(NGINX.format(work=self.work, port=port))
        command = ["nginx", "-e", self.work / "nginx.log", "-p", self.work, "-c", config]
        process, url = self.start("nginx", command), f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and process.poll() is None:
            try:
                urllib.request.urlopen(f"{url}/vod/small.bin").close()
                return process.pid, url
            except OSError:
                time.sleep(0.05)
        sys.exit("nginx is not ready")

    def limit(self, size):
        file = ["--file", self.work / "root" / "vod" / "large.bin", "--bytes", str(size)]
        command = [self.programs["baseline"], "limit", "--listen", "127.0.0.1:0", "--timeout", "10m", *file]
        name = f"limit-{size}"
        process = self.start(name, command)
        address = self.ready(name, process, r"(127\.0\.0\.1:\d+)")
        return process.pid, f"limit://{address}"


def loaded(command):
    """Runs a load on processor 1, and returns what it printed."""
    done = subprocess.run(
        ["taskset", "-c", "1", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def wrk(_programs, work, url, size, connections, _pipeline, longer):
    script = work / f"{size}.lua"
    scripted = ["-s", script] if script.exists() else []
    printed = loaded(["wrk", "-t", "1", "-c", str(connections), "-d", f"{WRK_SECONDS * longer}s", *scripted, url])
    if "Socket errors" in printed or "Non-2xx" in printed:
        sys.exit(f"{url}: {printed}")
    return int(re.search(r"(\d+) requests in", printed)[1])


def busy(programs, _work, url, size, connections, pipeline, longer):
    more = ["--pipeline", str(pipeline)] if pipeline > 1 else []
    if url.endswith("large.bin"):
        more += ["--range-size", str(size)]
    command = [programs["streamgauge"], "http", url, "--connections", str(connections)]
    command += ["--duration", f"{BUSY_SECONDS * longer}s", "--busy-poll", "--json", *more]
    counters = json.loads(loaded(command))["counters"]
    if counters["errors"]:
        sys.exit(f"{url}: {counters['errors']} errors")
    return counters["responses"]


LOADS = {"wrk": wrk, "busy": busy}


def measure(arguments, work, programs):
    """Yields round, load, case, server, answers and microseconds an answer."""
    vod = work / "root" / "vod"
    vod.mkdir(parents=True)
    for name, size in (("small.bin", 4 * KIB), ("large.bin", LARGE), ("whole.bin", WHOLE)):
        with open(vod / name, "wb") as file:
            for start in range(0, size, MIB):
                file.write(bytes(min(MIB, size - start)))
    cases = [case for case in CASES if not arguments.case or case[0] in arguments.case]
    servers = Servers(work, programs)
    try:
        peers = {"now": servers.headwater("now", programs["headwater"]), "nginx": servers.nginx()}
        if arguments.before:
            peers["before"] = servers.headwater("before", arguments.before)
        limits = {size: servers.limit(size) for _, size, _, _, _ in cases if 64 * KIB <= size < WHOLE}
        for _, size, _, _, _ in cases:
            if 64 * KIB <= size < WHOLE:
                (work / f"{size}.lua").write_text(WRK_SCRIPT.format(size=size, length=LARGE))
        for round in range(1, arguments.rounds + 1):
            for load in arguments.load or LOADS:
                for case, size, connections, pipeline, _ in cases:
                    if pipeline > 1 and load == "wrk":
                        continue
                    name = {4 * KIB: "small.bin", WHOLE: "whole.bin"}.get(size, "large.bin")
                    targets = {peer: (pid, f"{url}/vod/{name}") for peer, (pid, url) in peers.items()}
                    if load == "busy" and size in limits:
                        targets["limit"] = limits[size]
                    for server, (pid, url) in targets.items():
                        # A round without an answer is too short, and is repeated with twice the time.
                        for longer in (1, 2, 4, 8):
                            before = processor_time(pid)
                            count = LOADS[load](programs, work, url, size, connections, pipeline, longer)
                            spent = processor_time(pid) - before
                            if count:
                                break
                        else:
                            sys.exit(f"{url}: no answer in time")
                        yield round, load, case, server, count, 1e6 * spent / count
    finally:
        servers.stop()


def table(rows):
    """The medians as Markdown."""
    figures = {}
    for _, load, case, server, _, spent in rows:
        figures.setdefault((load, case), {}).setdefault(server, []).append(spent)
    servers = ["now", "before"] if any("before" in each for each in figures.values()) else ["now"]
    lines = [
        f"| load | case | {' | '.join(servers)} | goal | nginx | limit | {' | '.join(f'{each} / nginx' for each in servers)} |",
        "|---" * (5 + 2 * len(servers)) + "|",
    ]
    goals = {case: goal for case, _, _, _, goal in CASES}
    for (load, case), each in figures.items():
        median = {server: statistics.median(spent) for server, spent in each.items()}
        digit = lambda value: f"{value:.1f}" if value is not None else ""
        cells = [load, case, *(digit(median.get(server)) for server in servers)]
        cells += [digit(goals[case] * median["nginx"]), digit(median["nginx"]), digit(median.get("limit"))]
        cells += [f"{median[server] / median['nginx']:.2f}" for server in servers]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", action="append", choices=[case[0] for case in CASES])
    parser.add_argument("--load", action="append", choices=list(LOADS))
    parser.add_argument("--before", metavar="PROGRAM")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two processors are needed: one for the server, one for the load")
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    names = ("headwater", "streamgauge", "baseline")
    programs = {name: os.environ.get(name.upper(), built / name) for name in names}
    with tempfile.TemporaryDirectory() as work:
        rows = list(measure(arguments, Path(work), programs))
    print(table(rows))
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "table.md").write_text(table(rows) + "\n")
        with open(arguments.output / "rounds.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "load", "case", "server", "answers", "us_an_answer"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
