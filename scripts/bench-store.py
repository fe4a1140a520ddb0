#!/usr/bin/env python3
"""Measures what a title costs from an object store with a warm cache, compared with a local file.

    scripts/bench-store.py [-o FILE] [--rounds N] [--seconds S] [--gigabytes G]
                           [--headwater PROGRAM] [--streamgauge PROGRAM]

Two origins are on core 0, each with one event loop: one serves a title from a folder, the other the same title from a
store whose bytes are all in the cache. The load is on core 1: one connection for each of 8 viewers, which fetch the
title's segments in turn, as fast as the origin sends them. The origins take turns, N rounds (5) of S seconds (5). The
title has G gigabytes (0.25). Three times the title must fit into memory: the folder, the store's objects and the cache.

Each line has the processor time of the origin for each gigabyte (10^9 bytes) that it sent. The last line has the
medians, and the ratio of the two. All requests to the store are counted: a round that needed bytes of it does not count
as warm, and ends the script.

Needs ffmpeg, curl, taskset, scripts/make-media.sh and scripts/s3s.sh, and an otherwise idle machine of two cores.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Modules beside this script leave no files there.
sys.dont_write_bytecode = True
from cluster import HOST, PATIENCE, REPOSITORY, Failed, Program, get  # noqa: E402

SERVER, LOAD = ("taskset", "-c", "0"), ("taskset", "-c", "1")
TICKS = os.sysconf("SC_CLK_TCK")
VIEWERS = 8
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "headwater", "AWS_SECRET_ACCESS_KEY": "headwater", "AWS_REGION": "us-east-1"}
# The path of the title at both origins.
TITLE = "/vod/title.mp4"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    for name in ("headwater", "streamgauge"):
        parser.add_argument(f"--{name}", type=Path, default=os.environ.get(name.upper(), built / name))
    parser.add_argument("-o", "--output", type=Path, help="a file that gets each round as a line of JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=0.25)
    return parser.parse_args()


def until(done, program, what):
    """Waits until something has happened. Returns what `done` returned then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := done():
            return found
        if not program.runs():
            raise Failed(program.why())
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {PATIENCE} s")
        time.sleep(0.1)


def make_title(path, gigabytes):
    """Makes a film of so many bytes: a clip, again and again."""
    clip = REPOSITORY / "target/media/mp4/minute.mp4"
    if not clip.is_file():
        raise Failed(f"there is no {clip}: scripts/make-media.sh")
    times = max(1, round(gigabytes * 1e9 / clip.stat().st_size))
    subprocess.run(["ffmpeg", "-v", "error", "-stream_loop", str(times - 1), "-i", clip, "-c", "copy", "-movflags",
                    "+faststart", path], check=True)


def start_store(work, title):
    """Starts a server of objects that has the title. Returns its address."""
    binary = REPOSITORY / "target/s3s/bin/s3s-fs"
    if not binary.is_file():
        raise Failed(f"there is no {binary}: scripts/s3s.sh")
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    objects = work / "objects"
    objects.mkdir()
    key, secret, region = CREDENTIALS.values()
    store = Program("s3s-fs", [*LOAD, binary, "--host", HOST, "--port", port, "--access-key", key, "--secret-key", secret,
                               objects], work)
    until(lambda: socket.socket().connect_ex((HOST, port)) == 0, store, "s3s-fs listens")
    signed = ["curl", "-sS", "--fail", "-o", "/dev/null", "-X", "PUT", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
              "--aws-sigv4", f"aws:amz:{region}:s3", "--user", f"{key}:{secret}"]
    address = f"http://{HOST}:{port}"
    subprocess.run([*signed, f"{address}/films"], check=True)
    subprocess.run([*signed, "-T", title, f"{address}/films{TITLE}"], check=True)
    return address


class Origin:
    """An origin with one event loop. Its files are below `root`."""

    def __init__(self, asked, work, name, table):
        self.name = name
        config = work / f"{name}.toml"
        config.write_text(f"""workers = 1
[http]
listen = "{HOST}:0"
[rtmp]
listen = "{HOST}:0"
[webrtc]
enabled = false
{table}""")
        self.program = Program(name, [*SERVER, asked.headwater.resolve(), "serve", "--config", config], work)
        pattern = re.compile(r"^ready http=(\S+)", re.MULTILINE)
        ready = until(lambda: pattern.search(self.program.log.read_text()), self.program, f"{name} is ready")
        self.url = f"http://{ready.group(1)}"

    def processor_time(self):
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def fetched(self):
        """Bytes that came from the store so far."""
        text = get(f"{self.url}/metrics").decode()
        found = re.search(r"^headwater_store_fetched_bytes_total (\d+)", text, re.MULTILINE)
        return int(found.group(1)) if found else 0

    def segments(self):
        """The addresses of all segments of the title's video and audio."""
        def listed(url):
            lines = get(url, PATIENCE).decode().splitlines()
            own = [line for line in lines if line and not line.startswith("#")]
            return own + re.findall(r'^#EXT-X-MEDIA:.*URI="([^"]+)"', "\n".join(lines), re.MULTILINE)
        base = f"{self.url}{TITLE}"
        for playlist in dict.fromkeys(listed(f"{base}/index.m3u8")):
            folder = playlist.rpartition("/")[0]
            yield from (f"{base}/{folder}/{segment}" for segment in listed(f"{base}/{playlist}"))


def load(asked, work, origin, seconds):
    """Fetches the title's segments for some time. Returns seconds of processor time, and bytes."""
    targets = work / f"{origin.name}.targets"
    before, fetched = origin.processor_time(), origin.fetched()
    command = [*LOAD, asked.streamgauge.resolve(), "http", "--targets", targets, "--connections", VIEWERS, "--duration",
               f"{seconds}s", "--threads", 1, "--json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{origin.name}: {done.stderr or done.stdout}")
    used = origin.processor_time() - before
    if origin.fetched() > fetched:
        raise Failed("the cache was not warm")
    answer = json.loads(done.stdout)
    if answer["errors"] or list(answer["statuses"]) != ["200"]:
        raise Failed(f"{origin.name}: {answer['statuses']}, {answer['errors']}")
    return used, answer["counters"]["body_bytes"]


def measure(asked, work):
    title = work / "local/vod/title.mp4"
    title.parent.mkdir(parents=True)
    make_title(title, asked.gigabytes)
    size = title.stat().st_size
    address = start_store(work, title)
    os.environ.update(CREDENTIALS)
    here = Origin(asked, work, "local", f'[vod]\nroot = "{title.parent}"\n')
    there = Origin(asked, work, "store", f"""[vod]
root = "s3://films/vod"
[vod.store]
endpoint = "{address}"
allow_http = true
cache = "{work / 'cache'}"
cache_size = "{size // 10**6 * 2 + 64}MB"
""")
    for origin in (here, there):
        segments = list(origin.segments())
        for segment in segments:
            get(segment, PATIENCE)
        (work / f"{origin.name}.targets").write_text("\n".join(segments) + "\n")
    print(f"a title of {size / 1e9:.3f} GB in {len(segments)} segments, {asked.rounds} rounds of {asked.seconds} s")
    costs = {here.name: [], there.name: []}
    for number in range(1, asked.rounds + 1):
        # The second of a round is not always the same.
        for origin in (here, there) if number % 2 else (there, here):
            used, sent = load(asked, work, origin, asked.seconds)
            gigabytes = sent / 1e9
            costs[origin.name].append(used / gigabytes)
            line = {"round": number, "origin": origin.name, "processor_seconds": used, "bytes": sent}
            if asked.output:
                with asked.output.open("a") as output:
                    output.write(json.dumps(line) + "\n")
            print(f"round {number}  {origin.name:5}  {used / gigabytes:.3f} s/GB  ({gigabytes:.2f} GB)", flush=True)
    local, cached = (statistics.median(costs[origin.name]) for origin in (here, there))
    print(f"median  local {local:.3f} s/GB, store {cached:.3f} s/GB, ratio {cached / local:.2f}")


def main():
    asked = arguments()
    for program in (asked.headwater, asked.streamgauge):
        if not Path(program).is_file():
            raise Failed(f"there is no {program}: cargo build --release -p headwater -p streamgauge")
    with tempfile.TemporaryDirectory(prefix="headwater-store-") as work:
        measure(asked, Path(work))


if __name__ == "__main__":
    try:
        main()
    except (Failed, subprocess.CalledProcessError) as error:
        sys.exit(f"bench-store: {error}")
