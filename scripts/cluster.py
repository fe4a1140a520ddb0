#!/usr/bin/env python3
"""Runs a cluster on this machine until Ctrl-C: three NATS servers, two origins and three edges.

    scripts/cluster.py [--ports FIRST] [--headwater PROGRAM] [--nats PROGRAM]

All nodes are the same program and can do the same. A demo stream is published at origin-1, and the edges copy it when
somebody watches there. Everything listens on 127.0.0.1. The ports, with FIRST = 8100:

    8100 to 8104   HTTP of origin-1, origin-2, edge-1, edge-2, edge-3
    8110 to 8114   RTMP of these
    8120 to 8124   WebRTC (UDP) of these
    8130 to 8132   NATS: clients
    8140 to 8142   NATS: the servers among themselves
    8150 to 8152   NATS: what the servers say of themselves, by HTTP

The programs' logs are in a temporary folder, which is removed at the end. scripts/bench-cluster.py starts its clusters
with this file, too.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
# How long anything may take to start, in seconds. A busy machine is slow.
PATIENCE = 60
# How long a program has to end by itself, in seconds. A node promises to be gone within ten.
DRAIN = 12


class Failed(Exception):
    """The cluster cannot run, for this reason."""


@dataclass
class Node:
    """A node to start, and once it runs, where."""

    name: str
    zone: str
    demo: bool = False
    # Words before the command, such as those that pin the program to a core.
    prefix: tuple = ()
    workers: int = 0
    # The addresses of NATS that the node knows. None: all servers.
    nats: list = None
    http: str = ""
    rtmp: str = ""
    program: "Program" = None


class Program:
    """A process of the cluster. It ends with this script, however this script ends."""

    def __init__(self, name, command, work):
        self.name, self.log = name, work / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=work, start_new_session=True, preexec_fn=end_with_parent)

    @property
    def pid(self):
        return self.process.pid

    def runs(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def why(self):
        lines = self.log.read_text(errors="replace").splitlines()[-5:]
        return f"{self.name} ended with {self.process.returncode}:\n  " + "\n  ".join(lines)


def end_with_parent():
    # PR_SET_PDEATHSIG: the kernel sends the signal when the parent ends, also by SIGKILL.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def ports(first, nodes, servers):
    """Returns each port of the cluster and its purpose, by kind."""
    def row(offset, purpose, names):
        return [(first + offset + number, f"{purpose} of {name}") for number, name in enumerate(names)]
    names = [node.name for node in nodes]
    nats = [f"nats-{number + 1}" for number in range(servers)]
    return {"http": row(0, "HTTP", names), "rtmp": row(10, "RTMP", names), "webrtc": row(20, "WebRTC", names),
            "nats": row(30, "clients", nats), "routes": row(40, "routes", nats), "monitor": row(50, "monitor", nats)}


def check(rows):
    """Makes sure that nobody uses the ports."""
    for kind, row in rows.items():
        for port, purpose in row:
            with socket.socket(type=socket.SOCK_DGRAM if kind == "webrtc" else socket.SOCK_STREAM) as probe:
                # Connections that ended a short time ago do not matter. A datagram socket must not have the option:
                # with it, two may share a port.
                if kind != "webrtc":
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise Failed(f"port {port} ({purpose}): {error.strerror}. --ports FIRST chooses others.") from error


def get(url, limit=5):
    with urllib.request.urlopen(url, timeout=limit) as answer:
        return answer.read()


def answers(url):
    """The answer of a server as JSON or text, or None as long as there is none."""
    try:
        body = get(url)
    except OSError:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


class Cluster:
    """NATS servers and nodes. A context: what was started ends with it."""

    def __init__(self, headwater, nats, nodes, first=8100, servers=3, nats_prefix=()):
        if len(nodes) > 10 or servers not in (1, 3, 5):
            raise Failed("a cluster here has up to 10 nodes, and 1, 3 or 5 NATS servers")
        for program, how in ((headwater, "cargo build --release -p headwater"), (nats, "scripts/nats.sh")):
            if not Path(program).is_file():
                raise Failed(f"there is no {program}: {how}")
        self.headwater, self.nats, self.nodes, self.nats_prefix = headwater, nats, nodes, nats_prefix
        self.ports = ports(first, nodes, servers)
        self.servers, self.work = [], None

    def __enter__(self):
        check(self.ports)
        self.work = Path(tempfile.mkdtemp(prefix="headwater-cluster-"))
        try:
            for number in range(len(self.ports["nats"])):
                self.servers.append(self.start_server(number))
            self.until(lambda: all(self.is_healthy(number) for number in range(len(self.servers))), "NATS is ready")
            for number in range(len(self.nodes)):
                self.start_node(number)
            self.until(self.is_complete, "all nodes know each other")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C does not leave programs behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Nodes need NATS to say that they leave.
        for programs in ([node.program for node in self.nodes if node.program], self.servers):
            for program in programs:
                program.process.terminate()
            deadline = time.monotonic() + DRAIN
            for program in programs:
                try:
                    program.process.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    program.kill()
        shutil.rmtree(self.work, ignore_errors=True)

    def addresses(self):
        return [f"nats://{HOST}:{port}" for port, _ in self.ports["nats"]]

    def monitor(self, number):
        return f"http://{HOST}:{self.ports['monitor'][number][0]}"

    def start_server(self, number):
        port, route, monitor = (self.ports[kind][number][0] for kind in ("nats", "routes", "monitor"))
        name = f"nats-{number + 1}"
        command = [*self.nats_prefix, self.nats, "--addr", HOST, "--port", port, "--http_port", monitor,
                   "--server_name", name, "--jetstream", "--store_dir", self.work / name]
        if any(node.nats for node in self.nodes):
            # Otherwise the node learns of the others by this server.
            command.append("--no_advertise")
        if len(self.ports["nats"]) > 1:
            routes = ",".join(f"nats://{HOST}:{other}" for other, _ in self.ports["routes"])
            command += ["--cluster_name", "headwater", "--cluster", f"nats://{HOST}:{route}", "--routes", routes]
        return Program(name, command, self.work)

    def is_healthy(self, number):
        """Whether a server runs, and knows the leader of JetStream."""
        return isinstance(answers(f"{self.monitor(number)}/healthz"), dict)

    def start_node(self, number):
        """Starts a node, again if it has ended."""
        node = self.nodes[number]
        http, rtmp, webrtc = (f"{HOST}:{self.ports[kind][number][0]}" for kind in ("http", "rtmp", "webrtc"))
        config = self.work / f"{node.name}.toml"
        # JSON's texts and lists are those of TOML.
        config.write_text(f'workers = {node.workers}\n[cluster]\nnats = {json.dumps(node.nats or self.addresses())}\n'
                          f'node = {json.dumps(node.name)}\nzone = {json.dumps(node.zone)}\n'
                          f'advertise = "http://{http}"\nreplicas = {len(self.servers)}\n')
        demo = ["--demo"] if node.demo else []
        node.http, node.rtmp = f"http://{http}", f"rtmp://{rtmp}"
        node.program = Program(node.name, [*node.prefix, self.headwater, "serve", "--config", config, "--http", http,
                                           "--rtmp", rtmp, "--webrtc", webrtc, *demo], self.work)

    def is_complete(self):
        """Whether each node knows all."""
        def knows(node):
            told = answers(f"{node.http}/api/v1/cluster")
            return isinstance(told, dict) and {known["name"] for known in told["nodes"]} >= names
        names = {node.name for node in self.nodes}
        return all(knows(node) for node in self.nodes)

    def programs(self):
        return [*self.servers, *(node.program for node in self.nodes if node.program)]

    def until(self, done, what):
        """Waits until something has happened. A program that ends meanwhile is an error."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            for program in self.programs():
                if not program.runs():
                    raise Failed(program.why())
            if time.monotonic() > deadline:
                raise Failed(f"waited {PATIENCE} s in vain until {what}")
            time.sleep(0.1)


def show(cluster):
    nodes = {node.name: node for node in cluster.nodes}
    origin, edge = nodes["origin-1"], nodes["edge-1"]
    print(f"\n  {'node':10} {'zone':5} {'pages and media':24} {'publish':34} process")
    for node in cluster.nodes:
        print(f"  {node.name:10} {node.zone:5} {node.http + '/':24} {node.rtmp + '/live/NAME':34} {node.program.pid}")
    print(f"\n  Nodes      {origin.http}/nodes\n"
          f"  Watch      {edge.http}/watch/live/demo\n"
          f"  Playlist   {edge.http}/live/demo/index.m3u8\n"
          f"  Any node   {origin.http}/route/live/demo/index.m3u8?zone=us\n"
          f"  NATS       {' '.join(cluster.addresses())}\n"
          f"  Logs       {cluster.work}\n"
          f"  Stop       Ctrl-C (kill -9 PROCESS shows what happens when a node is lost)\n", flush=True)


def stay(cluster):
    """Waits until nothing runs any more, and says what ends."""
    told = set()
    while any(program.runs() for program in cluster.programs()):
        for program in cluster.programs():
            if not program.runs() and program.name not in told:
                told.add(program.name)
                print(program.why(), file=sys.stderr, flush=True)
        time.sleep(0.5)


def programs(parser):
    """Adds the options that name the programs."""
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser.add_argument("--headwater", default=os.environ.get("HEADWATER", built / "headwater"), metavar="PROGRAM")
    parser.add_argument("--nats", default=REPOSITORY / "target/nats/bin/nats-server", metavar="PROGRAM")
    parser.add_argument("--ports", type=int, default=8100, metavar="FIRST", help="the first port (default: 8100)")


def absolute(program):
    return Path(program).absolute()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    programs(parser)
    asked = parser.parse_args()
    if not 1024 <= asked.ports <= 65400:
        parser.error("--ports must be from 1024 to 65400")
    nodes = [Node("origin-1", "eu", demo=True), Node("origin-2", "us"), Node("edge-1", "eu"), Node("edge-2", "us"),
             Node("edge-3", "asia")]
    # Also where a shell started this in the background, and so without interrupts.
    for ends in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends, signal.default_int_handler)
    try:
        with Cluster(absolute(asked.headwater), absolute(asked.nats), nodes, asked.ports) as cluster:
            demo = f"{cluster.nodes[2].http}/live/demo/index.m3u8"
            cluster.until(lambda: answers(demo), "edge-1 has the demo stream")
            show(cluster)
            stay(cluster)
    except Failed as failed:
        sys.exit(f"cluster: {failed}")
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
