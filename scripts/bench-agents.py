#!/usr/bin/env python3
"""Compares the percentiles of runs that three agents share with those of runs that three processes share.

    scripts/bench-agents.py [-o DIR] [--rounds N] [--seconds N] [--rate N] [--viewers N] [--ports FIRST]
                            [--headwater PROGRAM] [--nats PROGRAM] [--streamgauge PROGRAM]

One origin with one event loop and one NATS server are on core 0. The load is on core 1, with the agents. Both kinds of runs
take turns (processes, agents, processes, agents): N rounds (6) of N seconds (7) with `http`, then as many with `viewers`.
With these numbers it takes three and a half minutes. `http` asks for the header of the demo stream's segments, --rate (2000)
times a second; --viewers (60) play the stream by low-latency HLS.

A table has the medians of each percentile over the rounds of both kinds, their ratio, and how far two rounds of processes
in a row are apart (median). The kinds agree if their medians differ by no more than that and the error that a histogram
states, a thousandth. `viewers` has no p99.9. Percentiles of too few requests are left out.
Raw figures go to DIR/rounds.jsonl, the table to DIR/agents.md and standard output.

Needs scripts/nats.sh, taskset, and an otherwise idle machine of two cores.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Modules beside this script leave no files there.
sys.dont_write_bytecode = True
import cluster  # noqa: E402
from cluster import Cluster, Failed, Node, Program, answers  # noqa: E402

SERVERS, LOAD = ("taskset", "-c", "0"), ("taskset", "-c", "1")
SHARES = 3
# What a percentile of a histogram may be wrong by.
EXACT = 0.001
# How many values of a round each percentile needs. That of a few is not the same twice.
PERCENTILES = {"p50": 1000, "p90": 1000, "p99": 1000, "p99_9": 5000}


def measure(asked):
    origin = Node("origin", "here", demo=True, prefix=SERVERS, workers=1)
    with Cluster(asked.headwater, asked.nats, [origin], asked.ports, servers=1, nats_prefix=SERVERS) as nodes:
        live = f"{origin.http}/live/demo"
        nodes.until(lambda: (answers(f"{live}/v0/media.m3u8") or "").count("#EXTINF") >= 4, "there is something to play")
        header = re.search('#EXT-X-MAP:URI="([^"]+)"', answers(f"{live}/v0/media.m3u8")).group(1)
        verbs = {"http": [f"{live}/v0/{header}", "--rate", asked.rate, "--connections", 2 * SHARES, "--threads", SHARES],
                 "viewers": [f"{live}/index.m3u8", "--batch-size", asked.viewers, "--loops", SHARES]}
        agents = [Program(f"agent-{number}", [*LOAD, asked.streamgauge, "agent", "--nats", *nodes.addresses(), "--name",
                                              f"agent-{number}"], nodes.work) for number in range(SHARES)]
        try:
            nodes.until(lambda: all("ready agent=" in agent.log.read_text() for agent in agents), "the agents are ready")
            crew = ["--agents", SHARES, "--nats", *nodes.addresses()]
            for verb, words in verbs.items():
                for number in range(1, asked.rounds + 1):
                    for kind, more in (("processes", []), ("agents", crew)):
                        print(f"{verb} by {kind}, round {number} of {asked.rounds} …", file=sys.stderr, flush=True)
                        yield {"verb": verb, "kind": kind, "round": number, **run(asked, verb, [*words, *more])}
        finally:
            for agent in agents:
                agent.kill()


def run(asked, verb, words):
    """One round: its distributions, and why they cannot be trusted."""
    command = [*LOAD, asked.streamgauge, verb, *words, "--processes", SHARES, "--duration", f"{asked.seconds}s", "--json"]
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              timeout=asked.seconds + cluster.PATIENCE)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{verb}: not ready in {late.timeout:.0f} s") from late
    if done.returncode not in (0, 1, 3):
        raise Failed(f"{verb}: {done.stderr}")
    told = json.loads(done.stdout)
    times = {"last byte": told["last_byte"]} if verb == "http" else told["viewers"]["requests_by_kind"]
    return {"times": times, "reasons": told["generator"]["reasons"]}


def rows(rounds):
    """Of each percentile with enough values: its name, medians by kind, and how far rounds of processes are apart."""
    for verb in dict.fromkeys(line["verb"] for line in rounds):
        of = {kind: [line["times"] for line in rounds if (line["verb"], line["kind"]) == (verb, kind)]
              for kind in ("processes", "agents")}
        for name in of["processes"][0]:
            each = {kind: [times.get(name) or {"count": 0} for times in lines] for kind, lines in of.items()}
            least = min(values["count"] for lines in each.values() for values in lines)
            for percentile, enough in PERCENTILES.items():
                if least >= enough and percentile in each["agents"][0]:
                    here, there = ([values[percentile] for values in lines] for lines in each.values())
                    apart = [abs(after - before) / before for before, after in zip(here, here[1:])]
                    yield (f"{verb}, {name}", percentile.replace("_", "."), statistics.median(here),
                           statistics.median(there), statistics.median(apart) if apart else None)


def render(rounds):
    doubtful = sum(bool(line["reasons"]) for line in rounds)
    lines = [f"{len(rounds)} rounds, in {doubtful} of them the generator was the limit", "",
             "| times of | percentile | three processes | three agents | ratio | two rounds of processes | agree |",
             "|---|---|---|---|---|---|---|"]
    for name, percentile, here, there, apart in rows(rounds):
        off = there / here - 1
        agree = "–" if apart is None else "yes" if abs(off) <= EXACT + apart else "no"
        between = "–" if apart is None else f"± {100 * apart:.1f} %"
        lines.append(f"| {name} | {percentile} | {1e3 * here:.3f} ms | {1e3 * there:.3f} ms | {1 + off:.3f} | {between} | "
                     f"{agree} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cluster.programs(parser)
    built = Path(os.environ.get("CARGO_TARGET_DIR", cluster.REPOSITORY / "target")) / "release"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    parser.add_argument("-o", dest="out", type=Path, default=cluster.REPOSITORY / f"lab/runs/{day}-agents", metavar="DIR")
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"), metavar="PROGRAM")
    for name, count in {"rounds": 6, "seconds": 7, "rate": 2000, "viewers": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"default: {count}")
    asked = parser.parse_args()
    for name in ("headwater", "nats", "streamgauge"):
        setattr(asked, name, cluster.absolute(getattr(asked, name)))
    asked.out.mkdir(parents=True, exist_ok=True)
    rounds = []
    with (asked.out / "rounds.jsonl").open("w") as kept:
        for line in measure(asked):
            rounds.append(line)
            kept.write(json.dumps(line) + "\n")
            kept.flush()
    table = render(rounds)
    (asked.out / "agents.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"bench-agents: {failed}")
