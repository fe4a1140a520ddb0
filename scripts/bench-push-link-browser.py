#!/usr/bin/env python3
"""Measures Chromium at the end of a link that falls from 8 to 1 Mbit/s and comes back: with push, where the
server chooses the rendition, and with low-latency HLS, where hls.js does.

    scripts/bench-push-link-browser.py -o DIR [--via push llhls] [--headwater PROGRAM]

There are three renditions: 320×240 at 100 kbit/s, 1280×720 at 1,200, 1920×1080 at 5,000, with a keyframe a second,
published by one ffmpeg. The origin and Chromium are in two network namespaces. A pair of virtual devices with a
token bucket (tc tbf) connects them: 20 s at 8 Mbit/s, 20 at 1, 25 at 8. Needs root, ip, tc, ffmpeg, node and
Chromium. Takes 75 s for each delivery, and 20 s before.

The pages' reports, four a second, go to DIR/link-VIA.jsonl, the table to DIR/link.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LADDER = [("low", "320x240", 100), ("medium", "1280x720", 1200), ("high", "1920x1080", 5000)]
TOP = 1080
# Mbit/s and seconds, from when the page begins to play.
PLAN = [(8, 20), (1, 20), (8, 25)]
SERVER, CLIENT = "10.88.0.1", "10.88.0.2"


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Link:
    """Two network namespaces, and a link of variable rate between them."""

    def __init__(self):
        self.server, self.client = f"link-{os.getpid()}-s", f"link-{os.getpid()}-c"
        try:
            for name in (self.server, self.client):
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", self.server, "link", "add", "hw0", "type", "veth", "peer", "name", "hw1",
                "netns", self.client)
            for name, device, address in ((self.server, "hw0", SERVER), (self.client, "hw1", CLIENT)):
                run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
                run("ip", "-n", name, "link", "set", device, "up")
            self.rate("add", PLAN[0][0])
        except SystemExit:
            self.remove()
            raise

    def rate(self, how, mbit):
        # A queue of a fifth of a second, as an access link may have.
        run("tc", "-n", self.server, "qdisc", how, "dev", "hw0", "root", "tbf", "rate", f"{mbit}mbit",
            "burst", "16kb", "latency", "200ms")

    def remove(self):
        for name in (self.server, self.client):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ladder(work):
    """Makes a clip of each rendition with its bit rate."""
    clips = []
    for name, size, kbit in LADDER:
        clip = work / f"{name}.mp4"
        run("ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
            f"testsrc2=size={size}:rate=25:duration=10", "-c:v", "libx264", "-preset", "ultrafast",
            "-b:v", f"{kbit}k", "-minrate", f"{kbit}k", "-maxrate", f"{kbit}k", "-bufsize", f"{kbit // 2}k",
            "-x264-params", "nal-hrd=cbr", "-g", "25", "-keyint_min", "25", "-sc_threshold", "0", "-bf", "0",
            "-pix_fmt", "yuv420p", clip)
        clips.append((name, clip))
    return clips


def publisher(link, clips, log):
    words = ["ip", "netns", "exec", link.server, "ffmpeg", "-nostdin", "-loglevel", "error"]
    for _, clip in clips:
        words += ["-re", "-stream_loop", "-1", "-i", str(clip)]
    for index, (name, _) in enumerate(clips):
        words += ["-map", f"{index}:v", "-c", "copy", "-f", "flv",
                  f"rtmp://{SERVER}:1935/live/link?rendition={name}"]
    return subprocess.Popen(words, stderr=log)


def watch(link, via, out, log):
    url = f"http://{SERVER}:8080/watch/live/link?via={via}"
    page = subprocess.Popen(["ip", "netns", "exec", link.client, "node", "bench/link.mjs", url],
                            cwd=REPOSITORY / "web", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                            text=True)
    seen, playing = [], threading.Event()

    def read():
        for line in page.stdout:
            if line.startswith("playing"):
                playing.set()
            else:
                seen.append(json.loads(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    changes = []
    try:
        link.rate("change", PLAN[0][0])
        if not playing.wait(60):
            sys.exit(f"{via}: it does not play")
        for mbit, seconds in PLAN:
            link.rate("change", mbit)
            changes.append({"at": time.time(), "mbit": mbit})
            time.sleep(seconds)
            if page.poll() is not None:
                sys.exit(f"{via}: the browser ended")
        page.stdin.close()
        page.wait(20)
        reader.join(5)
    finally:
        if page.poll() is None:
            page.terminate()
            try:
                page.wait(10)
            except subprocess.TimeoutExpired:
                page.kill()
    with (out / f"link-{via}.jsonl").open("w") as kept:
        for line in [*changes, *seen]:
            kept.write(json.dumps(line) + "\n")
    return changes, seen


def row(via, changes, seen):
    """Makes a row of the table, from when the link falls: what the page did before that belongs to the start."""
    fell, back = changes[1]["at"], changes[2]["at"]
    before = [look for look in seen if look["at"] < fell]
    after = [look for look in seen if look["at"] >= fell]
    if not before or not after:
        sys.exit(f"{via}: the page said nothing")
    stalls = [stall["seconds"] for stall in after[-1]["stalls"] if stall["at"] >= fell]
    reached = "yes" if before[-1]["height"] == TOP else f"no, {before[-1]['height']}"
    low = [look for look in after if look["at"] < back]
    down = next((f"{look['at'] - fell:.1f} s" for look in low if (look["height"] or TOP) < TOP), "never")
    up = next((f"{look['at'] - back:.1f} s" for look in after if look["at"] >= back and look["height"] == TOP),
              "never")
    late = [look["latency"] for look in after if look["latency"] is not None]
    latest = f"{max(late):.1f} s" if late else "–"
    return (f"| {via} | {reached} | {down} | {len(stalls)} | {sum(stalls):.2f} s "
            f"| {max(stalls, default=0):.2f} s | {up} | {latest} "
            f"| {after[-1]['droppedFrames']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--via", nargs="+", default=["push", "llhls"])
    parser.add_argument("--headwater", default=os.environ.get("HEADWATER", built / "headwater"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="link-"))
    link, started = None, []
    lines = ["| via | top rendition before | left it after | stalls | stood for | the longest "
             "| top rendition again after | most behind live | frames dropped |", "|---|---|---|---|---|---|---|---|---|"]
    with (asked.out / "link.log").open("w") as log:
        try:
            clips = ladder(work)
            link = Link()
            server = subprocess.Popen(["ip", "netns", "exec", link.server, asked.headwater, "serve",
                                       "--http", f"{SERVER}:8080", "--rtmp", f"{SERVER}:1935"],
                                      cwd=work, stdout=subprocess.PIPE, stderr=log, text=True,
                                      env={"HEADWATER_LOG": "info", **os.environ})
            started.append(server)
            if not server.stdout.readline().startswith("ready"):
                sys.exit(f"the origin does not start, see {asked.out}/link.log")
            started.append(publisher(link, clips, log))
            # Until the bit rates are known.
            time.sleep(5)
            for via in asked.via:
                lines.append(row(via, *watch(link, via, asked.out, log)))
        finally:
            for program in reversed(started):
                program.terminate()
                try:
                    program.wait(15)
                except subprocess.TimeoutExpired:
                    program.kill()
            if link:
                link.remove()
            shutil.rmtree(work, ignore_errors=True)
    table = "\n".join(lines) + "\n"
    (asked.out / "link.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
