#!/usr/bin/env python3
"""Counts what viewers of a cluster see while parts of the cluster fail, on this machine.

    scripts/bench-faults.py [-o DIR] [--only NAME,...] [--viewers N] [--rounds N] [--ports FIRST]
                            [--headwater PROGRAM] [--streamgauge PROGRAM]

Three NATS servers, two origins and three edges are on core 0; the encoder and the viewers are on core 1. At each edge
are N viewers (99), by LL-HLS, RTMP and push, with a buffer of 2 s. After 8 of 25 s something fails. The faults, by name:

    none       nothing: what the machine itself does to viewers
    server     kill -9 of a NATS server, in each round another
    lame-duck  a NATS server sends its clients away (SIGUSR2)
    paused     a NATS server stands still for 3 s (SIGSTOP)
    no-nats    all NATS servers are killed, and come back after 10 s
    owner      kill -9 of the origin that has the stream; the encoder is back at the other one after 2 s
    frozen     that origin stands still for 14 s (SIGSTOP); after 2 s the encoder begins to try the other one
    backup     the encoder stands still for 5 s, and then comes again; a backup publishes at the other origin
    drained    SIGTERM to an edge, whose LL-HLS viewers come through a plain TCP balancer
    edge       kill -9 of that edge

Needs ffmpeg and scripts/nats.sh. What each viewer saw goes to DIR/faults.jsonl, a table to DIR/faults.md and standard
output.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

# Modules beside this script leave no files there.
sys.dont_write_bytecode = True
import importlib  # noqa: E402

import cluster  # noqa: E402
from cluster import Cluster, Failed, Node  # noqa: E402

bench = importlib.import_module("bench-cluster")

EDGES = ("edge-1", "edge-2", "edge-3")
# When the fault comes, and how long viewers watch, in seconds.
FAULT, WATCH = 8, 25
BALANCED = ("drained", "edge")


class Balancer:
    """Forwards TCP connections to the first node that accepts them and is ready. A context."""

    def __init__(self, nodes):
        self.to = [("127.0.0.1", int(node.http.rpartition(":")[2])) for node in nodes]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.http = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()
        self.listener.close()

    def server(self):
        for address in self.to:
            try:
                cluster.get(f"http://{address[0]}:{address[1]}/readyz", 1)
                return socket.create_connection(address, timeout=1)
            except OSError:
                continue
        return None

    def run(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            while not self.stopped.is_set():
                for ready, _ in selector.select(0.1):
                    if ready.fileobj is self.listener:
                        client, _ = self.listener.accept()
                        server = self.server()
                        if server is None:
                            client.close()
                            continue
                        selector.register(client, selectors.EVENT_READ, server)
                        selector.register(server, selectors.EVENT_READ, client)
                    elif ready.fileobj.fileno() >= 0:
                        self.carry(selector, ready.fileobj, ready.data)

    def carry(self, selector, source, sink):
        try:
            data = source.recv(1 << 18)
            if data:
                sink.sendall(data)
        except OSError:
            data = b""
        if not data:
            for connection in (source, sink):
                selector.unregister(connection)
                connection.close()


class Faults:
    """One cluster in which something fails."""

    def __init__(self, asked, nodes, clip):
        self.asked, self.nodes, self.clip = asked, nodes, clip
        self.origins, self.edges = nodes.nodes[:2], nodes.nodes[2:]
        self.server, self.stream = 0, ""

    def fail(self, name, encoder):
        """Lets something fail, and mends it."""
        nodes, server = self.nodes, self.server
        if name == "server":
            nodes.servers[server].kill()
            nodes.servers[server] = nodes.start_server(server)
        elif name == "lame-duck":
            nodes.servers[server].process.send_signal(signal.SIGUSR2)
        elif name == "paused":
            nodes.servers[server].process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            nodes.servers[server].process.send_signal(signal.SIGCONT)
        elif name == "no-nats":
            for program in nodes.servers:
                program.kill()
            time.sleep(10)
            nodes.servers[:] = [nodes.start_server(number) for number in range(len(nodes.servers))]
        elif name == "owner":
            self.origins[0].program.kill()
            time.sleep(2)
            encoder.move(self.origins[1])
        elif name == "frozen":
            owner = self.origins[0].program.process
            owner.send_signal(signal.SIGSTOP)
            time.sleep(2)
            encoder.move(self.origins[1])
            time.sleep(12)
            owner.send_signal(signal.SIGCONT)
        elif name == "backup":
            encoder.process.send_signal(signal.SIGSTOP)
            time.sleep(5)
            encoder.process.kill()
        elif name == "drained":
            self.edges[0].program.process.terminate()
        elif name == "edge":
            self.edges[0].program.kill()

    def mend(self):
        """Waits until all runs again."""
        for number, program in enumerate(self.nodes.servers):
            if not program.runs():
                self.nodes.servers[number] = self.nodes.start_server(number)
        for number, node in enumerate(self.nodes.nodes):
            if not node.program.runs():
                self.nodes.start_node(number)
        self.nodes.until(self.nodes.is_complete, "all nodes are back")

    def run(self, name, number):
        """One round. Returns what each viewer saw."""
        self.server = number % len(self.nodes.servers)
        # The pause between two encoders of one stream would be a hole.
        self.stream = f"{name}-{number}"
        with ExitStack() as encoders:
            encoder = encoders.enter_context(Encoder(self.asked.headwater, self.clip, self.origins[0], self.stream))
            for edge in self.edges:
                bench.until_window(self.nodes, edge, [self.stream], 8)
            if name == "backup":
                backup = Encoder(self.asked.headwater, self.clip, self.origins[1], f"{self.stream}?backup=1")
                encoders.enter_context(backup)
            with Balancer(self.edges) as balancer:
                viewers = self.viewers(name, balancer)
                time.sleep(FAULT)
                self.fail(name, encoder)
                seen = [record for viewer in viewers for record in viewer.records()]
        self.mend()
        return [{"fault": name, "round": number, **record} for record in seen]

    def viewers(self, name, balancer):
        each = self.asked.viewers // 3
        if name in BALANCED:
            return [Viewers(self.asked, "LL-HLS", f"{balancer.http}/live/{self.stream}/v0/media.m3u8", each)]
        urls = [(delivery, bench.url(delivery, edge, self.stream)) for edge in self.edges for delivery in bench.DELIVERIES]
        return [Viewers(self.asked, delivery, url, each) for delivery, url in urls]


class Encoder:
    """Publishes, and tries again as encoders do. A context."""

    def __init__(self, headwater, path, node, stream):
        self.headwater, self.path, self.node, self.stream = headwater, path, node, stream
        self.process, self.stopped = None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()

    def move(self, node):
        self.node = node

    def run(self):
        while not self.stopped.is_set():
            at, quiet = self.node, subprocess.DEVNULL
            command = [*bench.LOAD, self.headwater, "publish", self.path, f"{at.rtmp}/live/{self.stream}", "--loop"]
            self.process = subprocess.Popen([str(word) for word in command], stdin=quiet, stdout=quiet, stderr=quiet,
                                            preexec_fn=cluster.end_with_parent)
            while self.process.poll() is None and not self.stopped.is_set() and self.node is at:
                time.sleep(0.05)
            self.process.kill()
            self.process.wait()
            # Where nobody lets it in, it tries five times a second.
            self.stopped.wait(0.2)


class Viewers:
    """Viewers of one delivery at one node, in a process of their own."""

    def __init__(self, asked, delivery, url, count):
        self.delivery, self.folder = delivery, tempfile.TemporaryDirectory(prefix="bench-faults-")
        command = [*bench.LOAD, asked.streamgauge, "viewers", url, "--batch-size", count, "--duration", f"{WATCH}s",
                   "--buffer", "2s", "--timeout", "20s", "--loops", 1, "--processes", 1, "-o", self.folder.name]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=cluster.end_with_parent)

    def records(self):
        """Waits until all have left."""
        _, complaint = self.process.communicate(timeout=WATCH + 120)
        if self.process.returncode not in (0, 1, 3):
            raise Failed(f"streamgauge: {complaint}")
        lines = (Path(self.folder.name) / "viewers.jsonl").read_text().splitlines()
        keys = ("end", "error", "stalls", "stalled", "holes", "missing", "reconnects", "troubles", "watched")
        records = [json.loads(line) for line in lines]
        self.folder.cleanup()
        return [{"delivery": self.delivery, **{key: record.get(key) for key in keys}} for record in records]


def render(records):
    """A table of what viewers saw."""
    lines = ["| fault | delivery | viewers | left early | stalled | time in stalls, median | most | media missing, most "
             "| reconnects |", "|---" * 9 + "|"]
    for fault, delivery in dict.fromkeys((record["fault"], record["delivery"]) for record in records):
        of = [record for record in records if (record["fault"], record["delivery"]) == (fault, delivery)]
        early = sum(record["watched"] < WATCH - 1 for record in of)
        stalled = [record["stalled"] or 0 for record in of]
        lines.append(f"| {fault} | {delivery} | {len(of)} | {early} | {sum(time > 0 for time in stalled)} "
                     f"| {statistics.median(stalled):.2f} s | {max(stalled):.2f} s "
                     f"| {max(record['missing'] or 0 for record in of):.2f} s "
                     f"| {sum(record['reconnects'] or 0 for record in of)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cluster.programs(parser)
    built = Path(os.environ.get("CARGO_TARGET_DIR", cluster.REPOSITORY / "target")) / "release"
    names = ("none", "server", "lame-duck", "paused", "no-nats", "owner", "frozen", "backup", "drained", "edge")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    parser.add_argument("-o", dest="out", type=Path, default=cluster.REPOSITORY / f"lab/runs/{day}-faults", metavar="DIR")
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"), metavar="PROGRAM")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, metavar="NAME,...")
    for name, count in (("viewers", 99), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"default: {count}")
    asked = parser.parse_args()
    if unknown := set(asked.only) - set(names):
        parser.error(f"no such fault: {', '.join(unknown)}")
    for name in ("headwater", "nats", "streamgauge"):
        setattr(asked, name, cluster.absolute(getattr(asked, name)))
    asked.out.mkdir(parents=True, exist_ok=True)
    records = []
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as work:
        clip = Path(work) / "clip.flv"
        bench.clip(clip, 600, 30, 48000)
        nodes = [Node(name, "here", prefix=bench.SERVERS, workers=1) for name in ("origin-1", "origin-2", *EDGES)]
        with Cluster(asked.headwater, asked.nats, nodes, asked.ports, nats_prefix=bench.SERVERS) as running:
            faults = Faults(asked, running, clip)
            for number in range(asked.rounds):
                for name in asked.only:
                    print(f"{number + 1} of {asked.rounds}: {name} …", file=sys.stderr, flush=True)
                    records += faults.run(name, number)
                    (asked.out / "faults.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    table = render(records)
    (asked.out / "faults.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
