#!/usr/bin/env python3
"""Counts what viewers of a cluster see while parts of the cluster fail, on this machine.

    scripts/bench-faults.py [-o DIR] [--only NAME,...] [--viewers N] [--rounds N] [--ports FIRST]
                            [--headwater PROGRAM] [--streamgauge PROGRAM]

Three NATS servers, two origins and three edges are on core 0; the encoder and the viewers are on core 1. At each edge
are N viewers (105), by seven deliveries, with a buffer of 2 s. As many are at the publisher's own node in those faults
that must not concern them. All that viewers get is verified. After 5 s something fails. The faults, by name:

    none       nothing: what the machine itself does to viewers
    server     kill -9 of a NATS server, in each round another
    lame-duck  a NATS server sends its clients away (SIGUSR2)
    paused     a NATS server stands still for 3 s (SIGSTOP)
    no-nats    all NATS servers are killed, and come back after 10 s
    owner      kill -9 of the origin that has the stream; the encoder is back at the other one after 2 s
    frozen     that origin stands still for 14 s (SIGSTOP); after 2 s the encoder begins to try the other one
    cut-off    that origin cannot reach NATS for 20 s, and its viewers can; the encoder goes to the other one
    backup     the encoder stands still for 5 s, and then comes again; a backup publishes at the other origin
    drained    SIGTERM to an edge, whose viewers come through a plain TCP balancer
    edge       kill -9 of that edge

Needs ffmpeg and scripts/nats.sh. What each viewer saw goes to DIR/faults.jsonl, tables to DIR/faults.md and standard
output. The exit status is 1 if viewers saw more than BOUNDS allows. Then DIR has the logs of that round.
"""

import argparse
import json
import os
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

# Modules beside this script leave no files there.
sys.dont_write_bytecode = True
import importlib  # noqa: E402

import cluster  # noqa: E402
from cluster import Cluster, Failed, Node  # noqa: E402

bench = importlib.import_module("bench-cluster")

EDGES = ("edge-1", "edge-2", "edge-3")
# When the fault comes, in seconds.
FAULT = 5
# For how long viewers watch while something fails, in seconds.
WATCH = {"none": 12, "server": 14, "lame-duck": 20, "paused": 14, "no-nats": 22, "owner": 14, "frozen": 26, "cut-off": 32,
         "backup": 22, "drained": 21, "edge": 14}
# The faults that viewers of the publisher's own node must not notice, and those whose viewers come through a balancer.
AT_HOME = ("none", "server", "lame-duck", "paused", "no-nats")
BALANCED = ("drained", "edge")
DELIVERIES = {**bench.DELIVERIES, "DASH": "{http}/live/{stream}/manifest.mpd", "FLV": "{http}/live/{stream}/live.flv",
              "MP4": "{http}/live/{stream}/live.mp4", "WHEP": "{http}/live/{stream}/whep"}
# How much viewers buffer, in seconds.
BUFFER = 2
# A player of WebRTC hears nothing of the end of its server. It waits for this long, in seconds.
PATIENCE = 4


@dataclass
class Bounds:
    """What a viewer may see at most: seconds in stalls, seconds of the longest hole, connections made again."""

    stalled: float = 0
    hole: float = 0
    reconnects: int = 0


# NATS is away for 10 s, and nodes need up to 1 s to connect again. The origin stands still for 14 s. A lease lasts 10 s, an
# encoder needs 2 s to come again, keyframes are 1 s apart. A viewer who comes again begins at the newest keyframe. So it may
# miss what came since it was sent away.
BOUNDS = {"no-nats": Bounds(stalled=11), "owner": Bounds(stalled=3, hole=3), "frozen": Bounds(stalled=14, hole=3),
          "cut-off": Bounds(stalled=13, hole=13), "backup": Bounds(stalled=2, hole=2),
          "drained": Bounds(hole=1, reconnects=1), "edge": Bounds(hole=1, reconnects=1)}


def bounds(fault, delivery, place):
    if place == "origin":
        return Bounds()
    most = BOUNDS.get(fault, Bounds())
    if fault == "edge" and delivery == "WHEP":
        return Bounds(stalled=PATIENCE, hole=PATIENCE + 1, reconnects=1)
    if delivery == "WHEP" and fault in ("no-nats", "frozen", "cut-off"):
        # Frames that are late are not sent by WebRTC. So viewers miss them, and fill their buffer with what comes then.
        stalled = most.stalled + BUFFER
        return replace(most, stalled=stalled, hole=stalled)
    if delivery == "DASH":
        # It has a connection for each track, and one for the manifest.
        return replace(most, reconnects=3 * most.reconnects)
    return most


class Forwarder:
    """Forwards connections of TCP. A context."""

    def __init__(self, kinds):
        self.listeners = {socket.create_server((cluster.HOST, 0)): kind for kind in kinds}
        for listener, kind in self.listeners.items():
            setattr(self, kind, f"{kind}://{cluster.HOST}:{listener.getsockname()[1]}")
        # While `holds` is set, nothing comes through.
        self.stopped, self.holds = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(5)
        for listener in self.listeners:
            listener.close()

    def server(self, kind):
        """A connection to where a client's is forwarded, or None."""
        raise NotImplementedError

    def run(self):
        with selectors.DefaultSelector() as selector:
            for listener in self.listeners:
                selector.register(listener, selectors.EVENT_READ)
            while not self.stopped.is_set():
                for ready, _ in [] if self.holds.is_set() else selector.select(0.1):
                    if ready.fileobj in self.listeners:
                        client, _ = ready.fileobj.accept()
                        server = self.server(self.listeners[ready.fileobj])
                        if server is None:
                            client.close()
                            continue
                        # Who takes nothing for so long is dropped, so that the others are not kept waiting for ever.
                        client.settimeout(2)
                        server.settimeout(2)
                        selector.register(client, selectors.EVENT_READ, server)
                        selector.register(server, selectors.EVENT_READ, client)
                    elif ready.fileobj.fileno() >= 0:
                        self.carry(selector, ready.fileobj, ready.data)
                if self.holds.is_set():
                    time.sleep(0.05)

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


class Balancer(Forwarder):
    """Forwards to the first node that accepts connections and is ready."""

    def __init__(self, nodes):
        super().__init__(("http", "rtmp"))
        self.nodes = nodes

    def server(self, kind):
        for node in self.nodes:
            try:
                cluster.get(f"{node.http}/readyz", 1)
                address = urlsplit(getattr(node, kind))
                return socket.create_connection((address.hostname, address.port), timeout=1)
            except OSError:
                continue
        return None


class Link(Forwarder):
    """A node's only way to NATS."""

    def __init__(self, port):
        super().__init__(("nats",))
        self.port = port

    def server(self, kind):
        try:
            return socket.create_connection((cluster.HOST, self.port), timeout=1)
        except OSError:
            return None


class Faults:
    """One cluster in which something fails."""

    def __init__(self, asked, nodes, clip, link):
        self.asked, self.nodes, self.clip, self.link = asked, nodes, clip, link
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
        elif name == "cut-off":
            self.link.holds.set()
            time.sleep(2)
            encoder.move(self.origins[1])
            time.sleep(18)
            self.link.holds.clear()
        elif name == "backup":
            encoder.process.send_signal(signal.SIGSTOP)
            time.sleep(5)
            encoder.process.kill()
        elif name == "drained":
            self.edges[0].program.process.terminate()
        elif name == "edge":
            self.edges[0].program.kill()

    def mend(self, name):
        """Waits until all runs again."""
        for number, program in enumerate(self.nodes.servers):
            if not program.runs() or name == "lame-duck" and number == self.server:
                end(program)
                self.nodes.servers[number] = self.nodes.start_server(number)
        for number, node in enumerate(self.nodes.nodes):
            if not node.program.runs() or name == "drained" and node is self.edges[0]:
                end(node.program)
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
                bench.until_window(self.nodes, edge, [self.stream], 4)
            if name == "backup":
                backup = Encoder(self.asked.headwater, self.clip, self.origins[1], f"{self.stream}?backup=1")
                encoders.enter_context(backup)
            with Balancer(self.edges) as balancer:
                viewers = self.viewers(name, balancer)
                time.sleep(FAULT)
                self.fail(name, encoder)
                seen = [record for viewer in viewers for record in viewer.records()]
        seen = [{"fault": name, "round": number, **record} for record in seen]
        if any(map(excess, seen)):
            logs = self.asked.out / f"{name}-{number}"
            logs.mkdir(exist_ok=True)
            for log in self.nodes.work.glob("*.log"):
                shutil.copy(log, logs)
        self.mend(name)
        return seen

    def viewers(self, name, balancer):
        each = max(1, self.asked.viewers // len(DELIVERIES))
        places = {"edges": [balancer] if name in BALANCED else self.edges,
                  "origin": self.origins[:1] if name in AT_HOME else []}
        return [Viewers(self.asked, name, place, delivery, url(delivery, node, self.stream), each)
                for place, nodes in places.items() for node in nodes for delivery in DELIVERIES]


def end(program):
    """Waits until a program has ended that was told to."""
    try:
        program.process.wait(cluster.DRAIN)
    except subprocess.TimeoutExpired:
        program.kill()


def url(delivery, node, stream):
    push = node.http.replace("http", "ws", 1)
    return DELIVERIES[delivery].format(http=node.http, rtmp=node.rtmp, ws=push, stream=stream)


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

    def __init__(self, asked, fault, place, delivery, url, count):
        self.place, self.delivery, self.watch = place, delivery, WATCH[fault]
        self.folder = tempfile.TemporaryDirectory(prefix="bench-faults-")
        command = [*bench.LOAD, asked.streamgauge, "viewers", url, "--batch-size", count, "--duration", f"{self.watch}s",
                   "--buffer", f"{BUFFER}s", "--timeout", f"{PATIENCE if delivery == 'WHEP' else 20}s", "--verify", "full",
                   "--reconnect", "--loops", 1, "--processes", 1, "-o", self.folder.name]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=cluster.end_with_parent)

    def records(self):
        """Waits until all have left."""
        _, complaint = self.process.communicate(timeout=self.watch + 120)
        if self.process.returncode not in (0, 1, 3):
            raise Failed(f"streamgauge: {complaint}")
        lines = (Path(self.folder.name) / "viewers.jsonl").read_text().splitlines()
        keys = ("end", "error", "stalls", "stalled", "holes", "missing", "longest_hole", "reconnects", "troubles", "watched")
        records = [json.loads(line) for line in lines]
        self.folder.cleanup()
        return [{"place": self.place, "delivery": self.delivery, **{key: record.get(key) for key in keys}}
                for record in records]


def excess(record):
    """What a viewer saw and should not have seen."""
    most = bounds(record["fault"], record["delivery"], record["place"])
    if record["watched"] < WATCH[record["fault"]] - 1 or record["error"]:
        return "left early"
    if "corrupt" in record["troubles"]:
        return "corrupt"
    return next((name for name, value, limit in (
        ("stalled", record["stalled"], most.stalled), ("hole", record["longest_hole"], most.hole),
        ("reconnects", record["reconnects"], most.reconnects)) if value > limit), None)


def render(records):
    """Tables of what viewers saw: by fault, and by delivery."""
    def table(name, *keys):
        lines = [f"| {name} | viewers | left early | stalled | time in stalls, median | most | longest hole | holes, most "
                 "| connections made again, most | more than allowed |", "|---" * (len(keys) + 9) + "|"]
        groups = {}
        for record in records:
            groups.setdefault(tuple(record[key] for key in keys), []).append(record)
        for group, of in groups.items():
            early = sum(excess(record) == "left early" for record in of)
            stalled = [record["stalled"] for record in of]
            wrong = Counter(filter(None, map(excess, of)))
            lines.append(f"| {' | '.join(group)} | {len(of)} | {early} | {sum(time > 0 for time in stalled)} "
                         f"| {statistics.median(stalled):.2f} s | {max(stalled):.2f} s "
                         f"| {max(record['longest_hole'] for record in of):.2f} s | {max(record['holes'] for record in of)} "
                         f"| {max(record['reconnects'] for record in of)} "
                         f"| {', '.join(f'{why}: {count}' for why, count in wrong.items()) or 'none'} |")
        return "\n".join(lines) + "\n"
    return table("fault | viewers of", "fault", "place") + "\n" + table(
        "fault | viewers of | delivery", "fault", "place", "delivery")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cluster.programs(parser)
    built = Path(os.environ.get("CARGO_TARGET_DIR", cluster.REPOSITORY / "target")) / "release"
    names = tuple(WATCH)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    parser.add_argument("-o", dest="out", type=Path, default=cluster.REPOSITORY / f"lab/runs/{day}-faults", metavar="DIR")
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"), metavar="PROGRAM")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, metavar="NAME,...")
    for name, count in (("viewers", 105), ("rounds", 5)):
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
        bench.clip(clip, 1200, 30, 48000)
        # In a cluster of its own, a node can be cut off. In the other one, nothing is between nodes and NATS.
        for cuts in (False, True):
            names = [name for name in asked.only if (name == "cut-off") is cuts]
            if not names:
                continue
            nodes = [Node(name, "here", prefix=bench.SERVERS, workers=1) for name in ("origin-1", "origin-2", *EDGES)]
            running = Cluster(asked.headwater, asked.nats, nodes, asked.ports, nats_prefix=bench.SERVERS)
            with ExitStack() as stack:
                link = stack.enter_context(Link(running.ports["nats"][0][0]))
                nodes[0].nats = [link.nats] if cuts else None
                faults = Faults(asked, stack.enter_context(running), clip, link)
                for number in range(asked.rounds):
                    for name in names:
                        print(f"{number + 1} of {asked.rounds}: {name} …", file=sys.stderr, flush=True)
                        records += faults.run(name, number)
                        kept = "".join(json.dumps(record) + "\n" for record in records)
                        (asked.out / "faults.jsonl").write_text(kept)
    tables = render(records)
    (asked.out / "faults.md").write_text(tables)
    print(tables, end="")
    return 1 if any(map(excess, records)) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"bench-faults: {failed}")
