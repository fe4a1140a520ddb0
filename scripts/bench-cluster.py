#!/usr/bin/env python3
"""Measures a cluster on this machine: what NATS and a second node add to what the origin alone takes.

    scripts/bench-cluster.py [-o DIR] [--only NAME,...] [--streams N] [--viewers N] [--many N] [--rounds N]
                             [--seconds N] [--ports FIRST] [--headwater PROGRAM] [--streamgauge PROGRAM]

Three NATS servers, one node for publishers and three edges, each with one event loop, are on core 0; publishers and
viewers are on core 1. What is compared takes turns (origin, edge, origin, edge). The measurements, by name:

    latency    a part: when it comes to a viewer of an edge after it came to a viewer of the origin
    first      the first playlist of a stream that an edge does not have yet, beside the same question to the origin
    viewers    a viewer of the edge beside one of the origin: processor and memory, by LL-HLS, RTMP and push
    memory     the memory of a viewer, each time in programs that have served nobody before
    unwatched  an edge on which nobody watches, with and without streams elsewhere
    failover   the node of a stream is killed, and its encoder is back at an edge after 2 s: what viewers miss
    many       many streams of 300 kbit/s over three nodes, unwatched and copied

Needs ffmpeg and scripts/nats.sh. Raw figures go to DIR/cluster.json, tables to DIR/cluster.md and standard output.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Modules beside this script leave no files there.
sys.dont_write_bytecode = True
import cluster  # noqa: E402
from cluster import Cluster, Failed, Node, answers, get  # noqa: E402
from cluster_tables import render  # noqa: E402
from push_viewers import Watching  # noqa: E402

SERVERS, LOAD = ("taskset", "-c", "0"), ("taskset", "-c", "1")
EDGES = ("edge-1", "edge-2", "edge-3")
# The window of a stream by default, and what of it has to be there, in seconds.
WINDOW, FULL = 30, 28
TICKS = os.sysconf("SC_CLK_TCK")
DELIVERIES = {"LL-HLS": "{http}/live/{stream}/v0/media.m3u8", "RTMP": "{rtmp}/live/{stream}",
              "push": "{ws}/live/{stream}/push"}


def clip(path, rate, frames, sound):
    """Makes a clip of a constant bit rate, with a keyframe a second."""
    done = subprocess.run(
        ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
         f"testsrc2=s=640x360:r={frames}:d=60", "-f", "lavfi", "-i", f"sine=r={sound}:d=60", "-vf",
         "noise=alls=20:allf=t:all_seed=5", "-c:v", "libx264", "-preset", "ultrafast", "-g", str(frames), "-b:v",
         f"{rate}k", "-maxrate", f"{rate}k", "-bufsize", f"{rate // 4}k", "-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a",
         "32k", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"ffmpeg: {done.stderr}")


def used(pids):
    """Processor time of processes, in seconds."""
    def ticks(pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return sum(ticks(pid) for pid in pids) / TICKS


def memory(pid, kind="RssAnon"):
    """Memory of a process in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))


class Publishers:
    """Streams that `headwater publish` sends over and over. A context."""

    def __init__(self, headwater, path, to):
        self.commands = {stream: [*LOAD, headwater, "publish", path, f"{node.rtmp}/live/{stream}", "--loop"]
                         for stream, node in to.items()}
        self.processes = {}

    def __enter__(self):
        for stream in self.commands:
            self.begin(stream)
        return self

    def begin(self, stream):
        quiet = subprocess.DEVNULL
        self.processes[stream] = subprocess.Popen([str(word) for word in self.commands[stream]], stdin=quiet, stdout=quiet,
                                                  stderr=quiet, preexec_fn=cluster.end_with_parent)

    def running(self):
        return sum(process.poll() is None for process in self.processes.values())

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


class Bench:
    """The programs, the clips and the sizes of the measurements."""

    def __init__(self, asked, work):
        self.asked, self.work = asked, work
        self.clip, self.small = work / "clip.flv", work / "small.flv"
        clip(self.clip, 1200, 30, 48000)
        clip(self.small, 260, 10, 8000)

    def cluster(self, names):
        nodes = [Node(name, "here", prefix=SERVERS, workers=1) for name in names]
        return Cluster(self.asked.headwater, self.asked.nats, nodes, self.asked.ports, nats_prefix=SERVERS)

    def publish(self, path, to):
        return Publishers(self.asked.headwater, path, to)

    def latency(self):
        """Milliseconds by which each part comes later to viewers of edges."""
        later = []
        with self.cluster(("origin", *EDGES)) as nodes:
            origin, *edges = nodes.nodes
            streams = [f"s{number}" for number in range(self.asked.streams)]
            with self.publish(self.clip, dict.fromkeys(streams, origin)):
                until_window(nodes, origin, streams, 4)
                # A stream's viewers in each order, so that none is always read first.
                orders = [[origin, *edges], [*edges[::-1], origin]]
                urls = [url("push", node, stream) for place, stream in enumerate(streams) for node in orders[place % 2]]
                with Watching(urls) as watching:
                    time.sleep(self.asked.seconds)
                came = {viewer.url: dict((which, at) for at, which in viewer.chunks) for viewer in watching.viewers}
                for stream in streams:
                    first = came[url("push", origin, stream)]
                    for edge in edges:
                        there = came[url("push", edge, stream)]
                        # What comes at the start is history, and no part as it is made.
                        begun = min(there.values()) + 2
                        later += [1000 * (at - first[which]) for which, at in there.items()
                                  if which in first and at > begun]
        return {"streams": len(streams), "edges": len(edges), "parts": len(later), "milliseconds": round_all(later, 3)}

    def first(self):
        """Milliseconds of the first playlist from an edge, and of the same question to the origin."""
        taken = {"origin": [], "edge": []}
        with self.cluster(("origin", *EDGES)) as nodes:
            origin, *edges = nodes.nodes
            streams = [f"s{number}" for number in range(self.asked.streams)]
            with self.publish(self.clip, dict.fromkeys(streams, origin)):
                until_window(nodes, origin, streams, FULL)
                for stream in streams:
                    for edge in edges:
                        for kind, node in (("origin", origin), ("edge", edge)):
                            begun = time.monotonic()
                            get(url("LL-HLS", node, stream), 10)
                            taken[kind].append(1000 * (time.monotonic() - begun))
        return {kind: round_all(values, 2) for kind, values in taken.items()}

    def viewers(self):
        """Processor time and memory of a viewer at the origin and at an edge, in turns."""
        runs = []
        with self.cluster(("origin", "edge-1")) as nodes, self.publish(self.clip, {"s0": nodes.nodes[0]}):
            until_window(nodes, nodes.nodes[0], ["s0"], FULL)
            # The copy is there before, so that its making is not measured.
            until_window(nodes, nodes.nodes[1], ["s0"], FULL)
            for number in range(self.asked.rounds):
                for delivery in DELIVERIES:
                    turns = nodes.nodes if number % 2 == 0 else nodes.nodes[::-1]
                    runs += [self.watch(delivery, node) for node in turns]
        return runs

    def memory(self):
        """Memory of a viewer: a program keeps what earlier viewers needed, so each case has new ones."""
        runs = []
        for delivery in DELIVERIES:
            for place in range(2):
                with self.cluster(("origin", "edge-1")) as nodes, self.publish(self.clip, {"s0": nodes.nodes[0]}):
                    for node in nodes.nodes:
                        until_window(nodes, node, ["s0"], FULL)
                    runs.append(self.watch(delivery, nodes.nodes[place]))
        return runs

    def watch(self, delivery, node):
        count, pid = self.asked.viewers, node.program.pid
        get(url("LL-HLS", node, "s0"))
        before, begun = used([pid]), time.monotonic()
        time.sleep(self.asked.seconds / 2)
        idle = (used([pid]) - before) / (time.monotonic() - begun)
        # Viewers keep the copy. Without any it would end meanwhile.
        get(url("LL-HLS", node, "s0"))
        lean, before, begun = memory(pid), used([pid]), time.monotonic()
        batch = max(1, count // 10)
        command = [*LOAD, self.asked.streamgauge, "viewers", url(delivery, node, "s0"), "--batches", count // batch,
                   "--batch-size", batch, "--interval", "200ms", "--duration", f"{self.asked.seconds}s", "--loops", 1,
                   "--processes", 1, "--json", "-o", self.work / "viewers"]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, preexec_fn=cluster.end_with_parent)
        most = lean
        while process.poll() is None and time.monotonic() - begun < self.asked.seconds:
            most = max(most, memory(pid))
            time.sleep(0.5)
        told, complaint = process.communicate(timeout=self.asked.seconds + 120)
        elapsed, spent = time.monotonic() - begun, used([pid]) - before
        if process.returncode not in (0, 1, 3):
            raise Failed(f"streamgauge: {complaint}")
        seen = json.loads(told)
        records = (self.work / "viewers/viewers.jsonl").read_text().splitlines()
        played = sum(json.loads(record)["watched"] for record in records)
        shutil.rmtree(self.work / "viewers")
        return {"delivery": delivery, "node": node.name, "viewers": count, "cpu_seconds": spent, "elapsed": elapsed,
                "idle_share": idle, "played_seconds": played, "lean_kib": lean, "most_kib": most,
                "satisfied": seen["viewers"]["satisfied"], "saturated": seen["generator"]["saturated"]}

    def unwatched(self):
        """Processor share and NATS traffic of an edge on which nobody watches."""
        runs = []
        with self.cluster(("origin", "edge-1")) as nodes:
            origin, edge = nodes.nodes
            for _ in range(self.asked.rounds):
                for count in (0, self.asked.streams):
                    streams = [f"s{number}" for number in range(count)]
                    with self.publish(self.clip, dict.fromkeys(streams, origin)):
                        until_window(nodes, origin, streams, 2)
                        before, begun = used([edge.program.pid]), time.monotonic()
                        traffic = [connection(nodes, node) for node in (edge, origin)]
                        time.sleep(self.asked.seconds)
                        after, elapsed = used([edge.program.pid]), time.monotonic() - begun
                        # What is out of NATS comes in at the node.
                        (received, sent), (_, origin_sent) = [
                            [(now[way] - then[way]) / elapsed for way in ("out_bytes", "in_bytes")]
                            for now, then in zip([connection(nodes, node) for node in (edge, origin)], traffic)]
                        runs.append({"streams": count, "cpu_share": (after - before) / elapsed, "received": received,
                                     "sent": sent, "origin_sent": origin_sent})
        return runs

    def failover(self):
        """What viewers of edges miss when the node of their stream is killed and the encoder comes to an edge."""
        runs = []
        with self.cluster(("origin", *EDGES)) as nodes:
            origin, *edges = nodes.nodes
            for number in range(self.asked.rounds):
                stream = f"s{number}"
                with self.publish(self.clip, {stream: origin}):
                    until_window(nodes, origin, [stream], 6)
                    for edge in edges:
                        until_window(nodes, edge, [stream], 6)
                    with Watching([url("push", edge, stream) for edge in edges]) as watching:
                        time.sleep(3)
                        origin.program.kill()
                        killed = time.monotonic()
                        time.sleep(2)
                        refused = self.go_on(stream, edges[0], watching)
                    runs += [missed(viewer, edge.name, killed, refused) for viewer, edge in zip(watching.viewers, edges)]
                nodes.start_node(0)
                nodes.until(nodes.is_complete, "the killed node is back")
        return runs

    def go_on(self, stream, node, watching):
        """Publishes anew, as an encoder that tries until it is let in. Returns how often it was refused."""
        refused, begun = -1, time.monotonic()
        seen = [len(viewer.chunks) for viewer in watching.viewers]
        with self.publish(self.clip, {stream: node}) as encoder:
            # Some parts have come to all viewers that are still connected.
            while any(viewer.ended is None and len(viewer.chunks) < had + 30
                      for viewer, had in zip(watching.viewers, seen)):
                if time.monotonic() - begun > cluster.PATIENCE:
                    break
                if not encoder.running():
                    encoder.begin(stream)
                    refused += 1
                time.sleep(0.1)
        return refused + 1

    def many(self):
        """Many streams over three nodes: first nobody watches, then another node copies each."""
        rows = []
        with self.cluster(EDGES) as nodes:
            count = len(nodes.nodes)
            at = {f"s{number}": nodes.nodes[number % count] for number in range(self.asked.many)}
            other = {stream: nodes.nodes[(number + 1) % count] for number, stream in enumerate(at)}
            with self.publish(self.small, at) as publishers:
                for node in nodes.nodes:
                    until_window(nodes, node, [stream for stream, has in at.items() if has is node], FULL)
                rows.append(self.load(nodes, publishers, "unwatched", None))
                rows.append(self.load(nodes, publishers, "copied", lambda: keep(other)))
        return rows

    def load(self, nodes, publishers, kind, refresh):
        if refresh:
            refresh()
        parts = {"nodes": [node.program.pid for node in nodes.nodes],
                 "nats": [program.pid for program in nodes.servers]}
        before, begun = {name: used(pids) for name, pids in parts.items()}, time.monotonic()
        traffic = [answers(f"{nodes.monitor(number)}/varz")["in_bytes"] for number in range(len(nodes.servers))]
        while time.monotonic() - begun < self.asked.seconds:
            time.sleep(min(10, self.asked.seconds))
            if refresh:
                refresh()
        elapsed = time.monotonic() - begun
        shares = {name: (used(pids) - before[name]) / elapsed for name, pids in parts.items()}
        after = [answers(f"{nodes.monitor(number)}/varz")["in_bytes"] for number in range(len(nodes.servers))]
        told = answers(f"{nodes.nodes[0].http}/api/v1/cluster")
        copies = [copy["behind_seconds"] for stream in told["streams"] for copy in stream["copies"]]
        return {"kind": kind, "publishers": publishers.running(), "live": sum(stream["live"] for stream in told["streams"]),
                "copies": len(copies), "up_to_date": sum(behind <= 1 for behind in copies),
                "node_share": shares["nodes"] / len(nodes.nodes), "nats_share": shares["nats"] / len(nodes.servers),
                "nats_in": (sum(after) - sum(traffic)) / elapsed,
                "node_mib": statistics.mean(memory(pid, "VmRSS") / 1024 for pid in parts["nodes"]),
                "nats_mib": statistics.mean(memory(pid, "VmRSS") / 1024 for pid in parts["nats"])}


def url(delivery, node, stream):
    return DELIVERIES[delivery].format(http=node.http, rtmp=node.rtmp, ws=node.http.replace("http", "ws", 1), stream=stream)


def keep(other):
    """Asks for a playlist of each stream at a node: this makes the copy, and keeps it for 30 s."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda item: answers(url("LL-HLS", item[1], item[0])), other.items()))


def until_window(nodes, node, streams, seconds):
    """Waits until a node lists so many seconds of each stream."""
    def listed(stream):
        text = answers(url("LL-HLS", node, stream)) or ""
        lines = [line for line in text.splitlines() if line.startswith("#EXTINF:")]
        return sum(float(line[8:].split(",")[0]) for line in lines)
    for stream in streams:
        nodes.until(lambda: listed(stream) >= seconds, f"{node.name} has {seconds} s of {stream}")


def connection(nodes, node):
    """What NATS says of a node's connection."""
    for number in range(len(nodes.servers)):
        for known in answers(f"{nodes.monitor(number)}/connz")["connections"]:
            if known.get("name") == f"headwater {node.name}":
                return known
    raise Failed(f"NATS has no connection of {node.name}")


def missed(viewer, node, killed, refused):
    times = [at for at, _ in viewer.chunks if at > killed - 2]
    gap = max((after - before for before, after in zip(times, times[1:])), default=None)
    return {"viewer_of": node, "connection_lost": viewer.ended is not None, "longest_gap": gap, "refused": refused,
            "events": [event.get("event") for at, event in viewer.events if at > killed]}


def round_all(values, digits):
    return [round(value, digits) for value in values]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cluster.programs(parser)
    built = Path(os.environ.get("CARGO_TARGET_DIR", cluster.REPOSITORY / "target")) / "release"
    names = ("latency", "first", "viewers", "memory", "unwatched", "failover", "many")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    parser.add_argument("-o", dest="out", type=Path, default=cluster.REPOSITORY / f"lab/runs/{day}-cluster", metavar="DIR")
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"), metavar="PROGRAM")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, metavar="NAME,...")
    sizes = {"streams": 10, "viewers": 1000, "many": 500, "rounds": 5, "seconds": 30}
    for name, count in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"default: {count}")
    asked = parser.parse_args()
    if unknown := set(asked.only) - set(names):
        parser.error(f"no such measurement: {', '.join(unknown)}")
    for name in ("headwater", "nats", "streamgauge"):
        setattr(asked, name, cluster.absolute(getattr(asked, name)))
    asked.out.mkdir(parents=True, exist_ok=True)
    figures = {"machine": {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg(), "day": day},
               "asked": {name: getattr(asked, name) for name in sizes}}
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as work:
        bench = Bench(asked, Path(work))
        for name in asked.only:
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                figures[name] = getattr(bench, name)()
            except Failed as failed:
                # The other measurements do not depend on this one.
                figures[name] = {"failed": str(failed)}
            (asked.out / "cluster.json").write_text(json.dumps(figures) + "\n")
    table = render(figures)
    (asked.out / "cluster.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
