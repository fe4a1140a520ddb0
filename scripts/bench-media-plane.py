#!/usr/bin/env python3
"""Measures what an answer costs the origin, nginx and the bare kernel in processor time.

    scripts/bench-media-plane.py [-o DIR] [--rounds N] [--case NAME]... [--load NAME]... [--before PROGRAM]
                                 [--network NAME]... [--congestion NAME]... [--add DIR]...

Each server has processor 0, the load has processor 1. The servers answer in turn in the same run. Processor
time is that of the server's process: user and system time of all its threads, in nanoseconds. The table has
the medians in microseconds an answer. Two loads are made: wrk, which sleeps while it waits, and streamgauge
with --busy-poll, which does not. "limit" is `baseline limit`: the same bytes by sendfile, without HTTP.

With --network or --congestion, the servers are in a network namespace of their own. The load is there too
(loopback), or in another namespace at the other end of a pair of virtual Ethernet devices (veth). Both have the
congestion control of the name; without --congestion, one after the other has its turn. This needs root, and what it
changes ends with the script. Without these options, all is as the machine has it, over loopback.

Needs nginx, wrk, openssl, two processors and an otherwise idle machine. Takes less than five minutes for each
network and congestion control. --before adds another build of the origin. DIR gets the figure of each round
(rounds.csv), the tables (table.md) and a description of the machine (machine.txt). --add DIR adds the rounds of an
earlier run of the same programs; with --rounds 0 nothing else is measured.
Without HEADWATER, STREAMGAUGE and BASELINE in the environment, the programs of the release build are measured.
"""

import argparse
import csv
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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


class Case(NamedTuple):
    name: str
    # Bytes of an answer.
    size: int
    # The most processor time, as a part of nginx's.
    goal: float
    # Whole files have few connections, so that each gets some answers in a short round.
    connections: int = 50
    # Requests sent at once.
    pipeline: int = 1
    # Whether each request has a connection of its own.
    closes: bool = False
    # Whether the answers come over TLS 1.3.
    tls: bool = False


CASES = [
    Case("4 KiB", 4 * KIB, 0.75),
    Case("4 KiB, 16 pipelined", 4 * KIB, 0.4, pipeline=16),
    Case("4 KiB, a connection each", 4 * KIB, 0.95, closes=True),
    Case("64 KiB", 64 * KIB, 0.9),
    Case("256 KiB", 256 * KIB, 1.0),
    Case("1 MiB", MIB, 1.0),
    Case("4 MiB", 4 * MIB, 1.0),
    Case("64 MiB, whole", WHOLE, 1.0, connections=4),
    Case("64 KiB, TLS", 64 * KIB, 0.7, tls=True),
    Case("256 KiB, TLS", 256 * KIB, 0.7, tls=True),
    Case("1 MiB, TLS", MIB, 0.7, tls=True),
    Case("4 MiB, TLS", 4 * MIB, 0.7, tls=True),
]
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
NETWORKS = ("loopback", "veth")
CONGESTIONS = ("cubic", "bbr")

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
    server {{
        listen {host}:{port}; listen {host}:{tls_port} ssl; root {work}/root;
        ssl_certificate {work}/certificate.pem; ssl_certificate_key {work}/key.pem; ssl_protocols TLSv1.3;
    }}
}}
"""

HEADWATER = """
[http]
listen = "{host}:0"
[http.tls]
listen = "{host}:0"
certificate = "{work}/certificate.pem"
key = "{work}/key.pem"
[rtmp]
listen = "{host}:0"
[webrtc]
listen = "{host}:0"
"""


def processor_time(pid):
    """User and system time of a process with all its threads, in seconds."""
    # The clock of another process: clock_getcpuclockid(3) makes its identifier this way.
    return time.clock_gettime((~pid << 3) | 2)


def free_ports(count):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Setting(NamedTuple):
    """Where servers and load are, and how a command is started there."""

    name: str = "as it is"
    host: str = "127.0.0.1"
    at_server: tuple = ("taskset", "-c", "0")
    at_load: tuple = ("taskset", "-c", "1")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")


@contextmanager
def setting(network, congestion):
    """A setting in network namespaces of its own."""
    names = [f"media-plane-{side}-{os.getpid()}" for side in ("server", "load")]
    server, load = [("ip", "netns", "exec", name) for name in names]
    made, allowed = [], ALLOWED.read_text()
    try:
        # A namespace can only have a congestion control that everybody may use.
        ALLOWED.write_text(f"{allowed.strip()} {congestion}")
        for name in names:
            run("ip", "netns", "add", name)
            made.append(name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={congestion}")
        host, at_load = "127.0.0.1", server
        if network == "veth":
            host, at_load = "10.0.0.1", load
            run("ip", "-n", names[0], "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", names[1])
            for number, name in enumerate(names):
                run("ip", "-n", name, "address", "add", f"10.0.0.{number + 1}/24", "dev", "v0")
                run("ip", "-n", name, "link", "set", "v0", "up")
        plain = Setting()
        yield Setting(f"{network}, {congestion}", host, (*server, *plain.at_server), (*at_load, *plain.at_load))
    finally:
        ALLOWED.write_text(allowed)
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


class Servers:
    """The servers of a run. They end with it."""

    def __init__(self, work, programs, at):
        self.work, self.programs, self.at, self.started = work, programs, at, []

    def start(self, name, command):
        log = open(self.work / f"{name}.log", "w")
        process = subprocess.Popen(
            [*self.at.at_server, *command], stdout=subprocess.PIPE, stderr=log, text=True
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
                    return found.groups()
        finally:
            timer.cancel()
        sys.exit(f"{name} is not ready: {(self.work / f'{name}.log').read_text()}")

    def headwater(self, name, program):
        config = self.work / "headwater.toml"
        config.write_text(HEADWATER.format(work=self.work, host=self.at.host))
        vod = ["--vod", self.work / "root" / "vod", "--workers", "1"]
        process = self.start(name, [program, "serve", "--config", config, *vod])
        http, https = self.ready(name, process, r"ready http=(\S+) .*https=(\S+)")
        return process.pid, f"http://{http}", f"https://{https}"

    def nginx(self):
        port, tls_port = free_ports(2)
        config = self.work / "nginx.conf"
        config.write_text(NGINX.format(work=self.work, host=self.at.host, port=port, tls_port=tls_port))
        command = ["nginx", "-e", self.work / "nginx.log", "-p", self.work, "-c", config]
        process, host = self.start("nginx", command), self.at.host
        connect = f"import socket; socket.create_connection(('{host}', {port}))"
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and process.poll() is None:
            tried = subprocess.run([*self.at.at_load, sys.executable, "-c", connect], capture_output=True, check=False)
            if tried.returncode == 0:
                return process.pid, f"http://{host}:{port}", f"https://{host}:{tls_port}"
            time.sleep(0.05)
        sys.exit("nginx is not ready")

    def limit(self, size):
        file = ["--file", self.work / "root" / "vod" / "large.bin", "--bytes", str(size)]
        command = [self.programs["baseline"], "limit", "--listen", f"{self.at.host}:0", "--timeout", "10m", *file]
        name = f"limit-{size}"
        process = self.start(name, command)
        (address,) = self.ready(name, process, r"((?:\d+\.){3}\d+:\d+)")
        return process.pid, f"limit://{address}"


def loaded(at, command):
    """Runs a load on processor 1, and returns what it printed."""
    done = subprocess.run(
        [*at.at_load, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )
    # 3: the load was slower than the server. The server's processor time for an answer counts all the same.
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def wrk(at, _programs, work, url, case, longer):
    script = work / f"{case.size}.lua"
    more = ["-s", script] if script.exists() else []
    more += ["-H", "Connection: close"] if case.closes else []
    time = ["-d", f"{WRK_SECONDS * longer}s"]
    printed = loaded(at, ["wrk", "-t", "1", "-c", str(case.connections), *time, *more, url])
    if "Socket errors" in printed or "Non-2xx" in printed:
        sys.exit(f"{url}: {printed}")
    return int(re.search(r"(\d+) requests in", printed)[1])


def busy(at, programs, _work, url, case, longer):
    more = ["--pipeline", str(case.pipeline)] if case.pipeline > 1 else []
    more += ["--no-keepalive"] if case.closes else []
    if url.endswith("large.bin"):
        more += ["--range-size", str(case.size)]
    command = [programs["streamgauge"], "http", url, "--connections", str(case.connections)]
    command += ["--duration", f"{BUSY_SECONDS * longer}s", "--busy-poll", "--json", *more]
    counters = json.loads(loaded(at, command))["counters"]
    if counters["errors"]:
        sys.exit(f"{url}: {counters['errors']} errors")
    return counters["responses"]


LOADS = {"wrk": wrk, "busy": busy}


def prepare(work):
    """Makes the files that the servers serve, and what they need themselves."""
    vod = work / "root" / "vod"
    vod.mkdir(parents=True)
    for name, size in (("small.bin", 4 * KIB), ("large.bin", LARGE), ("whole.bin", WHOLE)):
        with open(vod / name, "wb") as file:
            for start in range(0, size, MIB):
                file.write(bytes(min(MIB, size - start)))
    for size in {case.size for case in CASES if is_range(case)}:
        (work / f"{size}.lua").write_text(WRK_SCRIPT.format(size=size, length=LARGE))
    pair = ["-keyout", work / "key.pem", "-out", work / "certificate.pem"]
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", *pair)


def is_range(case):
    return 64 * KIB <= case.size < WHOLE


def is_made(load, case):
    """Whether a load can do what a case asks for. TLS costs streamgauge more than the server, so it would wait."""
    return not (case.pipeline > 1 if load == "wrk" else case.tls)


def measure(arguments, work, programs, at):
    """Yields setting, load, case, server, round, answers and microseconds an answer."""
    cases = [case for case in CASES if not arguments.case or case.name in arguments.case]
    servers = Servers(work, programs, at)
    try:
        peers = {"now": servers.headwater("now", programs["headwater"]), "nginx": servers.nginx()}
        if arguments.before:
            peers["before"] = servers.headwater("before", arguments.before)
        sizes = {case.size for case in cases if is_range(case) and not case.tls}
        limits = {size: servers.limit(size) for size in sizes}
        for round, load in itertools.product(range(1, arguments.rounds + 1), arguments.load or LOADS):
            for case in (case for case in cases if is_made(load, case)):
                name = {4 * KIB: "small.bin", WHOLE: "whole.bin"}.get(case.size, "large.bin")
                targets = {peer: (pid, f"{tls if case.tls else plain}/vod/{name}")
                           for peer, (pid, plain, tls) in peers.items()}
                if load == "busy" and case.size in limits:
                    targets["limit"] = limits[case.size]
                for server, (pid, url) in targets.items():
                    # A round without an answer is too short, and is repeated with twice the time.
                    for longer in (1, 2, 4, 8):
                        before = processor_time(pid)
                        count = LOADS[load](at, programs, work, url, case, longer)
                        spent = processor_time(pid) - before
                        if count:
                            break
                    else:
                        sys.exit(f"{url}: no answer in time")
                    yield at.name, load, case.name, server, round, count, 1e6 * spent / count
    finally:
        servers.stop()


def settings(arguments):
    """Yields the settings in turn."""
    if not (arguments.network or arguments.congestion):
        yield Setting()
        return
    for network, congestion in itertools.product(arguments.network or NETWORKS[:1], arguments.congestion or CONGESTIONS):
        with setting(network, congestion) as at:
            yield at


def table(rows):
    """The medians as Markdown."""
    figures = {}
    for setting, load, case, server, _, _, spent in rows:
        figures.setdefault((setting, load, case), {}).setdefault(server, []).append(spent)
    servers = ["now", "before"] if any("before" in each for each in figures.values()) else ["now"]
    lines = [
        f"| setting | load | case | {' | '.join(servers)} | goal | nginx | limit "
        f"| {' | '.join(f'{each} / nginx' for each in servers)} |",
        "|---" * (6 + 2 * len(servers)) + "|",
    ]
    goals = {case.name: case.goal for case in CASES}
    for (setting, load, case), each in figures.items():
        median = {server: statistics.median(spent) for server, spent in each.items()}
        digit = lambda value: f"{value:.1f}" if value is not None else ""
        cells = [setting, load, case, *(digit(median.get(server)) for server in servers)]
        cells += [digit(goals[case] * median["nginx"]), digit(median["nginx"]), digit(median.get("limit"))]
        cells += [f"{median[server] / median['nginx']:.2f}" for server in servers]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(rows):
    """Of each case, the processor time as a part of nginx's in each setting, and whether the goal is reached (bold)."""
    figures = {}
    for setting, load, case, server, _, _, spent in rows:
        figures.setdefault((case, f"{setting}, {load}"), {}).setdefault(server, []).append(spent)
    settings = list(dict.fromkeys(name for _, name in figures))
    lines = [f"| case | goal | {' | '.join(settings)} |", "|---" * (2 + len(settings)) + "|"]
    for case in (case for case in CASES if any(case.name == name for name, _ in figures)):
        cells = []
        for setting in settings:
            each = figures.get((case.name, setting))
            ratio = each and statistics.median(each["now"]) / statistics.median(each["nginx"])
            cells.append("" if not each else f"**{ratio:.2f}**" if round(ratio, 2) <= case.goal else f"{ratio:.2f}")
        lines.append(f"| {case.name} | {case.goal} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measured_before(folder):
    """The rows of an earlier run."""
    with open(folder / "rounds.csv", newline="") as file:
        return [(*row[:4], f"{folder} {row[4]}", int(row[5]), float(row[6])) for row in list(csv.reader(file))[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--load", action="append", choices=list(LOADS))
    parser.add_argument("--network", action="append", choices=NETWORKS)
    parser.add_argument("--congestion", action="append", choices=CONGESTIONS)
    parser.add_argument("--before", metavar="PROGRAM")
    parser.add_argument("--add", action="append", type=Path, default=[], metavar="DIR")
    arguments = parser.parse_args()
    # What was started or made ends with the script, also at SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two processors are needed: one for the server, one for the load")
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    names = ("headwater", "streamgauge", "baseline")
    programs = {name: os.environ.get(name.upper(), built / name) for name in names}
    common = f". {REPOSITORY}/scripts/bench-common.sh; cd {REPOSITORY}; machine; nginx -v 2>&1"
    machine = subprocess.run(["sh", "-c", common], capture_output=True, text=True, check=False).stdout
    rows = [row for folder in arguments.add for row in measured_before(folder)]
    with tempfile.TemporaryDirectory() as work:
        prepare(Path(work))
        for at in settings(arguments):
            rows += measure(arguments, Path(work), programs, at)
    tables = f"{table(rows)}\n\n{ratios(rows)}\n"
    print(tables, end="")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        before = "".join(f"\n{folder}:\n{(folder / 'machine.txt').read_text()}" for folder in arguments.add)
        (arguments.output / "machine.txt").write_text(machine + before)
        (arguments.output / "table.md").write_text(tables)
        with open(arguments.output / "rounds.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["setting", "load", "case", "server", "round", "answers", "us_an_answer"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
