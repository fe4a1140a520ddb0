#!/usr/bin/env python3
"""Measures the time from capture to a picture on Chromium's screen, over loopback: with push in chunks of one
picture, and with low-latency HLS of the same stream.

    scripts/bench-push-screen.py -o DIR [--seconds 20] [--headwater PROGRAM]

This script is the camera: 30 times a second it draws the current time into a picture of 640×360, as black and
white bars, and passes it to ffmpeg (x264, zerolatency), which publishes it over RTMP. A page in Chromium reads
the bars from the picture that it shows, and compares their time with the time at which the browser reports the
picture on the screen (requestVideoFrameCallback, expectedDisplayTime). So the figures include everything:
encoder, RTMP, origin, player and decoder. All of it uses the clock of this machine. Needs ffmpeg, node and
Chromium. Takes twice --seconds, and half a minute.

Raw figures go to DIR/screen-push.json, screen-llhls.json and DIR/screen.md.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, RATE = 640, 360, 30
# The layout that web/bench/screen.mjs reads.
BITS, BAR = 20, 16
CONFIGURATION = """
[http]
listen = "127.0.0.1:0"
[rtmp]
listen = "127.0.0.1:0"
[live]
# One picture.
part_target = "33ms"
"""


class Camera(threading.Thread):
    """Draws and publishes pictures until it is stopped."""

    def __init__(self, url, log):
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        words = ["ffmpeg", "-nostdin", "-loglevel", "warning", "-fflags", "nobuffer", "-probesize", "32",
                 "-f", "rawvideo", "-pix_fmt", "yuv420p", "-video_size", f"{WIDTH}x{HEIGHT}",
                 "-framerate", str(RATE), "-i", "pipe:0", "-c:v", "libx264", "-preset", "ultrafast",
                 "-tune", "zerolatency", "-b:v", "1500k", "-maxrate", "1500k", "-bufsize", "750k",
                 "-g", str(RATE), "-keyint_min", str(RATE), "-sc_threshold", "0", "-threads", "1",
                 "-flush_packets", "1", "-f", "flv", "-flvflags", "no_duration_filesize", url]
        self.encoder = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=log)
        dice = random.Random(5)
        # The moving part below the bars: each picture shows another part of a run of soft noise.
        self.noise = bytes(dice.randrange(96, 160) for _ in range(WIDTH)) * (HEIGHT + 64)
        self.colour = bytes([128]) * (WIDTH * HEIGHT // 2)

    def picture(self, stamp):
        bits = f"{stamp % (1 << BITS):0{BITS}b}"
        row = b"".join((b"\xeb" if bit == "1" else b"\x10") * BAR for bit in bits)
        inverse = b"".join((b"\x10" if bit == "1" else b"\xeb") * BAR for bit in bits)
        rest = b"\x80" * (WIDTH - len(row))
        top = (row + rest) * BAR + (inverse + rest) * BAR
        start = stamp // 33 % 64 * WIDTH + stamp // 33 % 7
        below = self.noise[start:start + WIDTH * (HEIGHT - 2 * BAR)]
        return top + below + self.colour

    def run(self):
        begun, number = time.monotonic(), 0
        while not self.stopped.is_set():
            number += 1
            ahead = begun + number / RATE - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            try:
                self.encoder.stdin.write(self.picture(int(time.time() * 1000)))
                self.encoder.stdin.flush()
            except OSError:
                return

    def stop(self):
        self.stopped.set()
        self.encoder.terminate()
        self.encoder.wait(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--headwater", default=os.environ.get("HEADWATER", built / "headwater"))
    parser.add_argument("--via", nargs="+", default=["push", "llhls"])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="screen-"))
    (work / "headwater.toml").write_text(CONFIGURATION)
    server = camera = None
    lines = ["| via | pictures | median | 90 % | 99 % | least | most | unreadable |", "|---|---|---|---|---|---|---|---|"]
    with (asked.out / "screen.log").open("w") as log:
        try:
            server = subprocess.Popen([asked.headwater, "serve", "--config", work / "headwater.toml"],
                                      stdout=subprocess.PIPE, stderr=log, text=True,
                                      env={**os.environ, "HEADWATER_LOG": "warn"})
            ports = dict(re.findall(r"(\w+)=\S*?:(\d+)", server.stdout.readline()))
            camera = Camera(f"rtmp://127.0.0.1:{ports['rtmp']}/live/screen", log)
            camera.start()
            for via in asked.via:
                url = f"http://127.0.0.1:{ports['http']}/watch/live/screen?via={via}"
                done = subprocess.run(["node", "bench/screen.mjs", url, str(asked.seconds)], cwd=REPOSITORY / "web",
                                      stdout=subprocess.PIPE, stderr=log, text=True, timeout=asked.seconds + 60,
                                      check=False)
                if done.returncode:
                    sys.exit(f"{via}: the browser failed, see {asked.out}/screen.log")
                (asked.out / f"screen-{via}.json").write_text(done.stdout)
                lines.append(row(via, json.loads(done.stdout)))
        finally:
            if camera:
                camera.stop()
            if server:
                server.terminate()
                server.wait(15)
            shutil.rmtree(work, ignore_errors=True)
    table = "\n".join(lines) + "\n"
    (asked.out / "screen.md").write_text(table)
    print(table, end="")


def row(via, found):
    late = sorted(picture["late"] for picture in found["pictures"])
    if len(late) < 2:
        sys.exit(f"{via}: no picture could be read")
    parts = statistics.quantiles(late, n=100, method="inclusive")
    figures = [statistics.median(late), parts[89], parts[98], late[0], late[-1]]
    cells = " | ".join(f"{figure:.0f} ms" for figure in figures)
    return f"| {via} | {len(late)} | {cells} | {found['unreadable']} |"


if __name__ == "__main__":
    main()
