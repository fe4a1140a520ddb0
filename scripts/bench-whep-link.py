#!/usr/bin/env python3
"""Measures WebRTC over links that lose, delay, reorder and narrow: viewers by WHEP, and a publisher by WHIP.

    scripts/bench-whep-link.py -o DIR [--seconds N] [--headwater PROGRAM] [--streamgauge PROGRAM]

A relay of datagrams between the origin and its peer has a seed, so that each run loses the same share of
packets in the same pattern. `headwater publish --stamp` publishes a clip of 600 kbit/s with 30 frames a second
and a keyframe every 2 s, by RTMP where the viewer's link is bad, or by WHIP through the relay. `streamgauge
watch --reference` plays by WHEP with a buffer of 300 ms, checks each picture, and tells the latency by the
stamps. Needs ffmpeg. Takes about half a minute for each of 12 cases.

Raw figures go to DIR/link.jsonl, a line for each case, the table to DIR/link.md and standard output.
"""

import argparse
import heapq
import http.client
import http.server
import itertools
import json
import random
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Time limit of a step, in seconds.
LIMIT = 60
# How long a packet may wait for its turn on a narrow link, in seconds.
QUEUE = 0.3
# When a link that narrows does so, in seconds after its first packet.
NARROWS_AFTER = 10


@dataclass
class Link:
    """One direction of a link. Times are in milliseconds, rates in kbit/s."""

    loss: float = 0
    delay: float = 0
    # A packet takes up to this much longer, so packets overtake each other.
    jitter: float = 0
    rate: float = 0
    narrows_to: float = 0


@dataclass
class Case:
    name: str
    publishes: bool = False
    down: Link = None
    up: Link = None
    renditions: bool = False


def both(**of):
    return {"down": Link(**of), "up": Link(**of)}


CASES = [
    Case("as it is", **both()),
    Case("1 % lost each way, 50 ms round trip", **both(loss=0.01, delay=25)),
    Case("5 % lost each way, 50 ms round trip", **both(loss=0.05, delay=25)),
    Case("10 % lost each way, 50 ms round trip", **both(loss=0.10, delay=25)),
    Case("5 % lost each way, 200 ms round trip", **both(loss=0.05, delay=100)),
    Case("reordered by up to 20 ms, 50 ms round trip", **both(delay=25, jitter=20)),
    Case(
        "3 Mbit/s fall to 1 Mbit/s, 50 ms round trip",
        renditions=True,
        down=Link(delay=25, rate=3000, narrows_to=1000),
        up=Link(delay=25),
    ),
    Case("publisher: as it is", publishes=True, **both()),
    Case("publisher: 1 % lost each way, 50 ms round trip", publishes=True, **both(loss=0.01, delay=25)),
    Case("publisher: 5 % lost each way, 50 ms round trip", publishes=True, **both(loss=0.05, delay=25)),
    Case("publisher: 10 % lost each way, 50 ms round trip", publishes=True, **both(loss=0.10, delay=25)),
    Case(
        "publisher: reordered by up to 20 ms, 50 ms round trip",
        publishes=True,
        **both(delay=25, jitter=20),
    ),
]


class Way:
    """What happens to the packets of one direction."""

    def __init__(self, link, seed):
        self.link, self.random = link, random.Random(seed)
        self.began = self.free = None
        self.lost = self.passed = 0

    def due(self, now, size):
        """When a packet comes out; None if it is lost."""
        link = self.link
        self.began = self.began or now
        # Each packet takes the same random numbers, whatever happens to it.
        chance, later = self.random.random(), self.random.random()
        start = now
        if link.rate:
            narrow = link.narrows_to and now - self.began >= NARROWS_AFTER
            rate = (link.narrows_to if narrow else link.rate) * 1000
            start = max(self.free or now, now)
            if start - now > QUEUE:
                self.lost += 1
                return None
            start = self.free = start + size * 8 / rate
        if chance < link.loss:
            self.lost += 1
            return None
        self.passed += 1
        return start + (link.delay + later * link.jitter) / 1000


class Relay(threading.Thread):
    """Relays datagrams between one peer and a port of this machine, until `stop`."""

    def __init__(self, port, down, up, seed):
        super().__init__(daemon=True)
        self.front, self.back = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.front.bind(("127.0.0.1", 0))
        self.back.connect(("127.0.0.1", port))
        self.port = self.front.getsockname()[1]
        self.down, self.up = Way(down, seed), Way(up, seed + 1)
        self.peer, self.ends = None, False
        self.start()

    def run(self):
        waiting, order = [], itertools.count()
        while not self.ends:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, is_up, data = heapq.heappop(waiting)
                try:
                    if is_up:
                        self.back.send(data)
                    elif self.peer:
                        self.front.sendto(data, self.peer)
                except OSError:
                    pass  # One side has ended.
            patience = min(0.1, waiting[0][0] - now) if waiting else 0.1
            for ready in select.select([self.front, self.back], [], [], max(0, patience))[0]:
                try:
                    data, source = ready.recvfrom(2048)
                except OSError:
                    continue
                is_up = ready is self.front
                if is_up:
                    self.peer = source
                due = (self.up if is_up else self.down).due(time.monotonic(), len(data))
                if due is not None:
                    heapq.heappush(waiting, (due, next(order), is_up, data))

    def stop(self):
        self.ends = True
        self.join()
        self.front.close()
        self.back.close()


def front(server, media, relay):
    """An HTTP server that hands requests on. Its answers name the relay's port for media."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def hand_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection("127.0.0.1", server, timeout=LIMIT)
            headers = {"Content-Type": self.headers.get("Content-Type", "application/sdp")}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            text = answer.read().replace(b" %d typ " % media, b" %d typ " % relay.port)
            self.send_response(answer.status)
            for name in ("Location", "Content-Type"):
                if answer.getheader(name):
                    self.send_header(name, answer.getheader(name))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PATCH = do_DELETE = hand_on

        def log_message(self, *_):
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    return served


def make_clip(path, size, rate):
    """A clip of 90 s with Opus and without B-frames, which WebRTC viewers get as it is."""
    subprocess.run(
        ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", f"testsrc2=s={size}:r=30", "-f", "lavfi"]
        + ["-i", "sine=f=440:r=48000", "-t", "90", "-c:v", "libx264", "-preset", "veryfast", "-bf", "0"]
        + ["-g", "60", "-b:v", f"{rate}k", "-maxrate", f"{rate}k", "-bufsize", f"{rate}k"]
        + ["-c:a", "libopus", "-b:a", "64k", str(path)],
        check=True,
    )


def until_live(url):
    """Waits until a stream has four segments."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=LIMIT) as answer:
                if answer.read().count(b"#EXTINF") >= 4:
                    return
        except urllib.error.HTTPError:
            pass
        time.sleep(0.2)
    raise TimeoutError(url)


def end(processes):
    for process in reversed(processes):
        process.terminate()
        process.wait(LIMIT)


def run(case, clips, seconds, options, work):
    """Runs a case. Returns what the viewer tells, and how many packets the relay lost and passed."""
    processes, relay, served = [], None, None
    log = open(work / "log", "a")

    def start(*command, **more):
        processes.append(subprocess.Popen([str(word) for word in command], stderr=log, text=True, **more))
        return processes[-1]

    try:
        origin = start(
            options.headwater, "serve", "--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0",
            "--webrtc", "127.0.0.1:0", stdout=subprocess.PIPE, cwd=work,
        )  # fmt: skip
        ready = dict(word.split("=") for word in origin.stdout.readline().split()[1:])
        port = {name: int(address.rsplit(":", 1)[1]) for name, address in ready.items()}
        relay = Relay(port["webrtc"], case.down, case.up, options.seed)
        served = front(port["http"], port["webrtc"], relay)
        through = f"http://127.0.0.1:{served.server_address[1]}/live/x"
        direct = f"http://127.0.0.1:{port['http']}/live/x"
        publish = [options.headwater, "publish", "--stamp"]
        if case.publishes:
            start(*publish, clips["high"], f"{through}/whip")
        elif case.renditions:
            for name in ("wide", "low"):
                start(*publish, clips[name], f"rtmp://127.0.0.1:{port['rtmp']}/live/x?rendition={name}")
        else:
            start(*publish, clips["high"], f"rtmp://127.0.0.1:{port['rtmp']}/live/x")
        for track in ("v0", "v1") if case.renditions else ("v0",):
            until_live(f"{direct}/{track}/media.m3u8")
        watched = direct if case.publishes else through
        # Pictures of two renditions are those of two files.
        check = [] if case.renditions else ["--reference", clips["high"]]
        viewer = start(
            options.streamgauge, "watch", f"{watched}/whep", "--duration", f"{seconds}s", "--buffer", options.buffer,
            "--json", *check, stdout=subprocess.PIPE,
        )  # fmt: skip
        told, _ = viewer.communicate(timeout=seconds + LIMIT)
        return json.loads(told)["viewer"], [relay.down.lost, relay.down.passed, relay.up.lost, relay.up.passed]
    finally:
        end(processes)
        if served:
            served.shutdown()
            served.server_close()
        if relay:
            relay.stop()
        log.close()


def row(case, viewer):
    """A row of the table."""
    rtp, delivery = viewer["rtp"] or {}, viewer["delivery"] or {}
    milliseconds = lambda key: f"{delivery[key] * 1000:.0f}" if key in delivery else "–"
    missing = "–" if viewer["missing"] is None else f"{viewer['missing']:.2f}"
    end = viewer["end"] if viewer["error"] is None else viewer["error"]["what"]
    cells = [
        case.name, rtp.get("packets"), rtp.get("recovered"), rtp.get("lost"), rtp.get("keyframe_requests"),
        viewer["stalls"], f"{viewer['stalled']:.2f}", missing, milliseconds("mean"), milliseconds("max"),
        "as asked" if end == "time" else end,
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--buffer", default="300ms", help="how much the viewer has before it plays")
    parser.add_argument("--only", help="cases whose name this regular expression matches")
    parser.add_argument("--headwater", default=REPOSITORY / "target/release/headwater")
    parser.add_argument("--streamgauge", default=REPOSITORY / "target/release/streamgauge")
    options = parser.parse_args()
    options.headwater, options.streamgauge = (
        Path(program).resolve() for program in (options.headwater, options.streamgauge)
    )
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| link | packets | recovered | lost | keyframes asked for | stalls | stalled, s | missing, s "
        "| capture to arrival, mean, ms | most | ended |",
        "|---" * 11 + "|",
    ]
    print(*lines, sep="\n", flush=True)
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        clips = {name: work / f"{name}.mp4" for name in ("high", "wide", "low")}
        for (name, path), (size, rate) in zip(
            clips.items(), [("640x360", 530), ("1280x720", 1500), ("640x360", 400)], strict=True
        ):
            make_clip(path, size, rate)
        for case in CASES:
            if options.only and not re.search(options.only, case.name):
                continue
            viewer, relayed = run(case, clips, options.seconds, options, work)
            kept.append(json.dumps({"case": case.name, "relay": relayed, "viewer": viewer}))
            lines.append(row(case, viewer))
            print(lines[-1], flush=True)
    (options.out / "link.jsonl").write_text("\n".join(kept) + "\n")
    (options.out / "link.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
