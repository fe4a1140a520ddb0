#!/usr/bin/env python3
"""Measures how much later the last of thousands of viewers gets a part than a bare loop could send it.

    scripts/bench-broadcast.py -o DIR [--case push|ll-hls|rtmp]... [--rounds 3] [--seconds 8] [--scale 1]
                               [--headwater PROGRAM] [--baseline PROGRAM]

    push    5,000 viewers by WebSocket, 100 kbit/s in parts of 200 ms
    ll-hls  3,000 viewers, 1.8 Mbit/s in parts of 1 s: 225 kB
    rtmp    10,000 viewers, 100 kbit/s, 5 frames a second; each frame is sent at once (rtmp.flush_interval 0)

The server has core 0, all else core 1. The origin, `baseline limit --broadcast` and the same with --uring have their
turn in each round. The baseline sends as many bytes, as often, to as many sockets. The viewers of all are the same:
they ask once for all that they will get, and then throw it away. perf(1) records when a server's calls that send end,
and the time from the first to the last of a part is the figure. So what a player does with a part does not count. Needs
ffmpeg, perf and root. --scale 0.1 is for a tenth of the viewers.

The table goes to standard output and DIR/broadcast.md, the figure of each part to DIR/broadcast.csv, a description of
the machine to DIR/machine.txt.
"""

import argparse
import csv
import os
import re
import resource
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
# Events that tell of a send: the end of a system call, or the begin and the end of an operation of io_uring. Those that
# the kernel did at once end together.
SENDS = (*(f"syscalls:sys_exit_{call}" for call in ("write", "writev", "sendto", "sendmsg", "sendfile64")),
         "io_uring:io_uring_submit_req", "io_uring:io_uring_complete")
# The longest wait for a program, in seconds.
LIMIT = 120


class Case(NamedTuple):
    viewers: int
    # Bits and frames a second of the stream, and milliseconds of a part.
    bits: int
    rate: int
    part: int

    @property
    def size(self):
        return self.bits * self.part // 8000


CASES = {
    "push": Case(5000, 100_000, 15, 200),
    "ll-hls": Case(3000, 1_800_000, 30, 1000),
    "rtmp": Case(10_000, 100_000, 5, 200),
}


def clip(path, case):
    """A clip with a keyframe each 2 s, and the same bit rate in each of them."""
    rate, distance = str(case.bits), str(2 * case.rate)
    done = subprocess.run(
        ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
         f"testsrc2=size=320x180:rate={case.rate}:duration=18", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
         "-threads", "1", "-b:v", rate, "-minrate", rate, "-maxrate", rate, "-bufsize", str(case.bits // 5),
         "-x264-params", "nal-hrd=cbr", "-g", distance, "-keyint_min", distance, "-sc_threshold", "0",
         "-movflags", "+faststart", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)


@contextmanager
def running(words, **options):
    """A program that ends with this."""
    process = subprocess.Popen([str(word) for word in words], text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def sends(pid, seconds, work):
    """The times at which the process's sends ended, in seconds."""
    recording = work / "perf.data"
    events = ",".join(SENDS)
    words = ["taskset", "-c", "1", "perf", "record", "-q", "-m", "16M", "-e", events, "-p", pid, "-o", recording,
             "--", "sleep", seconds]
    noted = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if noted.returncode:
        sys.exit(f"perf: {noted.stderr}")
    read = subprocess.run(["perf", "script", "-i", recording, "-F", "time"], capture_output=True, text=True, check=True)
    return sorted(float(found) for found in re.findall(r"(\d+\.\d+):", read.stdout))


def spans(times, case, viewers):
    """The time from the first to the last send of each part that went to nearly all viewers, in milliseconds, and the
    number of sends. Half of a part's time without a send is between two parts."""
    found, begun = [], 0
    for at in range(1, len(times) + 1):
        if at == len(times) or times[at] - times[at - 1] > case.part / 2000:
            if at - begun >= 0.9 * viewers and begun and at < len(times):
                found.append(((times[at - 1] - times[begun]) * 1e3, at - begun))
            begun = at
    return found


class Viewers:
    """Connections that ask once, and of which a thread takes all bytes, without a copy of them. A context."""

    def __init__(self, count, port, asked=b""):
        self.sockets = {}
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
            connection.sendall(asked)
            connection.setblocking(False)
            self.sockets[connection.fileno()] = connection
        self.bytes = self.ended = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()
        for each in self.sockets.values():
            each.close()

    def run(self):
        nowhere = bytearray(1 << 20)
        with select.epoll(len(self.sockets)) as poll:
            for each in self.sockets:
                poll.register(each, select.EPOLLIN)
            while not self.stopped.is_set():
                for ready, _ in poll.poll(0.1):
                    try:
                        # MSG_TRUNC: the bytes are thrown away in the kernel (tcp(7)).
                        taken = self.sockets[ready].recv_into(nowhere, 0, socket.MSG_TRUNC)
                    except BlockingIOError:
                        continue
                    except OSError:
                        taken = 0
                    self.bytes += taken
                    if not taken:
                        self.ended += 1
                        poll.unregister(ready)


def watched(asked, case, viewers, server, work):
    """The parts of a server while these viewers watch."""
    with viewers:
        # What there was before is out, and who joins late has joined.
        time.sleep(3)
        before = viewers.bytes
        times = sends(server.pid, asked.seconds, work)
        wanted = 0.8 * asked.seconds * case.bits / 8 * len(viewers.sockets)
        if viewers.ended or viewers.bytes - before < wanted:
            sys.exit(f"{viewers.ended} viewers were sent away, {viewers.bytes - before} bytes came, not {wanted:.0f}")
        return spans(times, case, len(viewers.sockets))


def push(ports, _seconds):
    return int(ports["http"]), (b"GET /live/last/push HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
                                b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: headwater.v1\r\n\r\n")


def low_latency_hls(ports, seconds):
    """Asks for all parts that will come, one after the other. Each is answered when it is there."""
    url = f"http://127.0.0.1:{ports['http']}/live/last/v0"
    with urllib.request.urlopen(f"{url}/media.m3u8", timeout=LIMIT) as answer:
        hint = re.findall(r'PRELOAD-HINT:TYPE=PART,URI="(\d+)\.(\d+)\.m4s"', answer.read().decode())
    first = 2 * int(hint[0][0]) + int(hint[0][1])
    # Two parts of 1 s are a segment.
    names = (f"{part // 2}.{part % 2}.m4s" for part in range(first, first + seconds + 30))
    return int(ports["http"]), "".join(
        f"GET /live/last/v0/{name} HTTP/1.1\r\nHost: h\r\n\r\n" for name in names).encode()


def rtmp(ports, _seconds):
    """The handshake and three commands, without a look at the answers (RTMP 1.0, 5.2 and 7.2)."""
    text = lambda words: struct.pack(">BH", 2, len(words)) + words.encode()
    key = lambda words: text(words)[1:]
    number = lambda value: struct.pack(">Bd", 0, value)
    null, end = b"\5", b"\0\0\11"

    def command(stream, payload):
        # One chunk, of at most 128 bytes: type 0, chunk stream 3, command in AMF 0 (20).
        return b"\3\0\0\0" + len(payload).to_bytes(3, "big") + b"\x14" + struct.pack("<I", stream) + payload

    connect = text("connect") + number(1) + b"\3" + key("app") + text("live") + key("tcUrl")
    connect += text("rtmp://127.0.0.1/live") + end
    return int(ports["rtmp"]), (
        b"\3" + bytes(1536) + bytes(1536) + command(0, connect)
        + command(0, text("createStream") + number(2) + null)
        + command(1, text("play") + number(3) + null + text("last")))


ASKED = {"push": push, "ll-hls": low_latency_hls, "rtmp": rtmp}


def limit(asked, name, viewers, work, *how):
    """The parts of the bare loop."""
    case = CASES[name]
    (work / "part.bin").write_bytes(bytes(case.size))
    # Small parts come from memory, as with the origin.
    words = ["taskset", "-c", "0", asked.baseline, "limit", "--listen", "127.0.0.1:0", "--timeout", "10m", "--file",
             work / "part.bin", "--bytes", case.size, "--broadcast", f"{case.part}ms"]
    words += how or (["--write"] if case.size < 64 << 10 else [])
    with running(words, stdout=subprocess.PIPE, stderr=sys.stderr) as server:
        port = int(re.search(r":(\d+)", server.stdout.readline())[1])
        return watched(asked, case, Viewers(viewers, port), server, work)


def origin(asked, name, viewers, work):
    """The parts of the origin."""
    case = CASES[name]
    clip(work / "clip.mp4", case)
    (work / "headwater.toml").write_text(
        f'workers = 1\n[http]\nlisten = "127.0.0.1:0"\nmax_connections = 0\n[rtmp]\nlisten = "127.0.0.1:0"\n'
        f'max_players = 0\nflush_interval = "0s"\n[webrtc]\nlisten = "127.0.0.1:0"\n[live]\npart_target = "{case.part}ms"\n')
    with ExitStack() as stack:
        words = ["taskset", "-c", "0", asked.headwater, "serve", "--config", work / "headwater.toml"]
        quiet = {"env": {**os.environ, "HEADWATER_LOG": "warn"}, "stdout": subprocess.PIPE}
        server = stack.enter_context(running(words, **quiet))
        ports = dict(re.findall(r"(\w+)=\S*?:(\d+)", server.stdout.readline()))
        publish = ["taskset", "-c", "1", asked.headwater, "publish", work / "clip.mp4",
                   f"rtmp://127.0.0.1:{ports['rtmp']}/live/last", "--loop"]
        stack.enter_context(running(publish, stdout=subprocess.DEVNULL, stderr=sys.stderr))
        # A window with a few segments.
        time.sleep(6)
        return watched(asked, case, Viewers(viewers, *ASKED[name](ports, asked.seconds)), server, work)


def uring(asked, name, viewers, work):
    """The parts of the bare loop with io_uring."""
    return limit(asked, name, viewers, work, "--write", "--uring")


SERVERS = {"origin": origin, "limit": limit, "io_uring": uring}


def table(rows):
    lines = ["| case | viewers | bytes of a part | origin, first to last send | limit | limit by io_uring "
             "| origin / limit (goal 1.2) | parts |", "|---|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row[0] for row in rows):
        of = {server: [row[4] for row in rows if row[0] == name and row[2] == server] for server in SERVERS}
        if not all(of.values()):
            sys.exit(f"{name}: no part went to all in one go: {[(server, len(each)) for server, each in of.items()]}")
        median = {server: statistics.median(each) for server, each in of.items()}
        viewers = next(row[1] for row in rows if row[0] == name)
        cells = [name, viewers, CASES[name].size, *(f"{each:.1f} ms" for each in median.values())]
        cells += [f"{median['origin'] / median['limit']:.2f}", ", ".join(str(len(each)) for each in of.values())]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main():
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1)
    for name in ("headwater", "baseline"):
        parser.add_argument(f"--{name}", default=os.environ.get(name.upper(), built / name))
    asked = parser.parse_args()
    # What was started ends with the script, also at SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {1})
    asked.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(1, asked.rounds + 1):
        for name in asked.case or CASES:
            viewers = int(CASES[name].viewers * asked.scale)
            for server, measured in SERVERS.items():
                with tempfile.TemporaryDirectory() as work:
                    for span, count in measured(asked, name, viewers, Path(work)):
                        rows.append([name, viewers, server, number, round(span, 3), count])
    with open(asked.out / "broadcast.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "viewers", "server", "round", "ms", "sends"])
        writer.writerows(rows)
    common = f". {REPOSITORY}/scripts/bench-common.sh; cd {REPOSITORY}; machine"
    machine = subprocess.run(["sh", "-c", common], capture_output=True, text=True, check=False).stdout
    (asked.out / "machine.txt").write_text(machine)
    (asked.out / "broadcast.md").write_text(table(rows))
    print(table(rows), end="")


if __name__ == "__main__":
    main()
