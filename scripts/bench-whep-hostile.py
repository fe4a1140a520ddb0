#!/usr/bin/env python3
"""Measures whether viewers by WHEP notice what hostile peers do.

    target/aiortc/bin/python scripts/bench-whep-hostile.py -o DIR [--viewers N] [--seconds N] [--rounds N]
        [--headwater PROGRAM] [--streamgauge PROGRAM]

`headwater publish` publishes a clip of 600 kbit/s by WHIP, and `streamgauge viewers` plays it by WHEP. Rounds
without and with hostile peers alternate. Those send, from another address than the viewers:

- requests: no SDP, offers of 1 MB, good offers that nobody follows up, sessions that are not there;
- datagrams of strangers: STUN, DTLS and RTP, whole, cut short, and of random bytes;
- connections by TCP that say nothing, or nonsense, or have the longest frames;
- two viewers (aiortc) that each ask for a keyframe 100 times a second, and for 500 packets again, 100 times.

The origin has core 0. Viewers have core 1, and hostile peers what the viewers leave of it. Needs ffmpeg and
scripts/aiortc.sh. Raw figures go to DIR/hostile.jsonl, a line for each round, and a table to standard output.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from aiortc import RTCPeerConnection, RTCSessionDescription

REPOSITORY = Path(__file__).resolve().parent.parent
# Time limit of a step, in seconds.
LIMIT = 60
# The hostile peers' address. The viewers have another, for which there is no limit.
ADDRESS = "127.0.0.2"
# The binding request of RFC 5769 2.1, whose sender knows no password of ours.
STUN = bytes.fromhex(
    "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74002400046e0001ff"
    "80290008932ff9b151263b36000600096576746a3a68367659202020000800149aeaa70cbfd8cb56781ef2b5b2d3f249"
    "c1b571a280280004e57a3bcf"
)
DTLS = bytes.fromhex("16fefd0000000000000000003001000024000000000000002400") + bytes(40)
OFFER = """v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=rtcp:9 IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\n\
a=ice-pwd:0123456789abcdef0123456789\r\na=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\na=mid:0\r\n\
a=recvonly\r\na=rtcp-mux\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;profile-level-id=42e01f\r\n"""



async def request(port, method, path, body, told):
    """Sends a request, and counts the answers by status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))
    try:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/sdp\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await asyncio.wait_for(reader.read(), LIMIT)
        status = answer[9:12].decode() or "none"
    except OSError:
        # The server may close before it has read all.
        status = "closed"
    finally:
        writer.close()
    told[status] = told.get(status, 0) + 1


async def requests(port, told):
    """Some 50 requests a second."""
    good = OFFER.format(fingerprint=":".join(["AB"] * 32)).encode()
    kinds = [
        ("POST", "/live/x/whep", b"\x00\xff no SDP"),
        ("POST", "/live/x/whip", good.replace(b"a=recvonly", b"a=sendonly")),
        ("POST", "/live/x/whep", good),
        ("POST", "/live/x/whep", b"v=0\r\n" + b"a=x\r\n" * 200_000),
        ("POST", "/live/x/whep", good + b"a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n" * 900),
        ("PATCH", "/live/x/whep/none", b"a=ice-ufrag:abcd\r\n"),
        ("DELETE", "/live/x/whip/none", b""),
    ]
    while True:
        for method, path, body in kinds:
            await request(port, method, path, body, told)
            await asyncio.sleep(0.02)


async def datagrams(port, told):
    """Some 2,000 datagrams a second, from ever other ports."""
    chance = random.Random(1)
    rtp = struct.pack("!BBHII", 0x80, 96, 7, 8, 9) + bytes(900)
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((ADDRESS, 0))
            for _ in range(100):
                whole = chance.choice([STUN, DTLS, rtp, chance.randbytes(chance.randrange(1400))])
                piece = whole[: chance.randrange(len(whole) + 1)] if chance.random() < 0.3 else whole
                with contextlib.suppress(OSError):
                    own.sendto(piece, ("127.0.0.1", port))
                    told["sent"] = told.get("sent", 0) + 1
        await asyncio.sleep(0.05)


async def connections(port, told):
    """Some 20 connections a second, of which up to 200 are open at once."""
    opened = []
    frames = [b"", STUN, b"\xff\xff" + bytes(70_000), struct.pack("!H", len(STUN)) + STUN, b"\x20\x00" + bytes(8192)]
    while True:
        for frame in frames:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ADDRESS, 0))
                writer.write(frame)
                opened.append(writer)
                told["opened"] = told.get("opened", 0) + 1
            await asyncio.sleep(0.05)
        while len(opened) > 200:
            opened.pop(0).close()


async def storm(port, told):
    """A viewer that asks for everything again and again."""
    peer = RTCPeerConnection()
    peer.addTransceiver("video", direction="recvonly")

    @peer.on("track")
    def take(track):
        async def drop():
            while True:
                await track.recv()

        peer.taker = asyncio.ensure_future(drop())

    await peer.setLocalDescription(await peer.createOffer())

    def post():
        url = f"http://127.0.0.1:{port}/live/x/whep"
        body = peer.localDescription.sdp.encode()
        asked = urllib.request.Request(url, body, {"Content-Type": "application/sdp"})
        with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
            return answer.read().decode()

    answer = await asyncio.get_running_loop().run_in_executor(None, post)
    await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    receiver = peer.getReceivers()[0]
    while True:
        for ssrc in list(getattr(receiver, "_RTCRtpReceiver__active_ssrc")):
            await receiver._send_rtcp_pli(ssrc)
            newest = getattr(receiver, "_RTCRtpReceiver__remote_streams")[ssrc].max_seq
            await receiver._send_rtcp_nack(ssrc, list(range(max(0, newest - 499), newest + 1)))
            told["asked"] = told.get("asked", 0) + 1
        await asyncio.sleep(0.01)


async def attack(http, media, seconds, told):
    each = [(requests, http), (datagrams, media), (connections, media), (storm, http), (storm, http)]
    tasks = [asyncio.ensure_future(do(port, told.setdefault(do.__name__, {}))) for do, port in each]
    _, pending = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    failed = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    if any(failed):
        raise next(filter(None, failed))


def hostile(http, media, seconds, to):
    """Runs the hostile peers, with what the viewers leave of their core."""
    os.sched_setaffinity(0, {1})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    told = {}
    try:
        asyncio.run(attack(http, media, seconds, told))
    finally:
        to.send(told)


def ticks(pid):
    """Processor time of a process, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def make_clip(path):
    subprocess.run(
        ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=640x360:r=30", "-f", "lavfi"]
        + ["-i", "sine=f=440:r=48000", "-t", "60", "-c:v", "libx264", "-preset", "veryfast", "-bf", "0"]
        + ["-g", "60", "-b:v", "530k", "-maxrate", "530k", "-bufsize", "530k"]
        + ["-c:a", "libopus", "-b:a", "64k", str(path)],
        check=True,
    )


def until_live(url):
    """Waits until a stream has four segments."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=LIMIT) as answer:
            if answer.read().count(b"#EXTINF") >= 4:
                return
        time.sleep(0.2)
    raise TimeoutError(url)


def run(is_hostile, clip, options, work):
    """One round. Returns what the viewers tell, and what the hostile peers and the origin did."""
    processes = []

    def start(core, *command, **more):
        words = ["taskset", "-c", str(core), *(str(word) for word in command)]
        with open(work / "log", "a") as log:
            processes.append(subprocess.Popen(words, stderr=log, text=True, **more))
        return processes[-1]

    try:
        config = work / "headwater.toml"
        config.write_text('[http]\nunlimited_networks = ["127.0.0.1/32"]\n')
        origin = start(
            0, options.headwater, "serve", "--config", config, "--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0",
            "--webrtc", "127.0.0.1:0", "--workers", "1", stdout=subprocess.PIPE,
        )  # fmt: skip
        ready = dict(word.split("=") for word in origin.stdout.readline().split()[1:])
        port = {name: int(address.rsplit(":", 1)[1]) for name, address in ready.items()}
        base = f"http://127.0.0.1:{port['http']}/live/x"
        start(1, options.headwater, "publish", clip, f"{base}/whip", "--loop")
        until_live(f"{base}/v0/media.m3u8")
        ours, theirs = multiprocessing.Pipe()
        other = multiprocessing.Process(
            target=hostile, args=(port["http"], port["webrtc"], options.seconds + 6, theirs)
        )
        if is_hostile:
            other.start()
        time.sleep(4)
        before = ticks(origin.pid)
        viewers = start(
            1, options.streamgauge, "viewers", f"{base}/whep", "--batch-size", options.viewers, "--loops", "1",
            "--duration", f"{options.seconds}s", "--json", stdout=subprocess.PIPE,
        )  # fmt: skip
        told, _ = viewers.communicate(timeout=options.seconds + LIMIT)
        share = (ticks(origin.pid) - before) / options.seconds
        done = ours.recv() if is_hostile else None
        with urllib.request.urlopen(f"http://127.0.0.1:{port['http']}/metrics", timeout=LIMIT) as answer:
            lines = answer.read().decode().splitlines()
        dropped = next(line for line in lines if line.startswith("headwater_webrtc_dropped_total"))
        if is_hostile:
            other.join(LIMIT)
        return {
            "hostile": is_hostile, "core": share, "done": done, "dropped": float(dropped.split()[-1]),
            "told": json.loads(told),
        }  # fmt: skip
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(LIMIT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--headwater", default=REPOSITORY / "target/release/headwater")
    parser.add_argument("--streamgauge", default=REPOSITORY / "target/release/streamgauge")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print("| hostile peers | got everything | stalls | packets lost | late, p99, ms | core |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as folder, open(options.out / "hostile.jsonl", "w") as kept:
        work = Path(folder)
        make_clip(work / "clip.mp4")
        for number in range(2 * options.rounds):
            figures = run(number % 2 == 1, work / "clip.mp4", options, work)
            kept.write(json.dumps(figures) + "\n")
            all = figures["told"]["viewers"]
            late = (all["late"] or {}).get("p99", 0) * 1000
            cells = [
                "yes" if figures["hostile"] else "no", f"{all['satisfied']} of {all['reported']}", all["stalls"],
                (all["rtp"] or {}).get("lost"), f"{late:.0f}", f"{figures['core']:.2f}",
            ]  # fmt: skip
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            if figures["hostile"]:
                print(f"  {figures['done']} dropped {figures['dropped']:.0f}", flush=True)


if __name__ == "__main__":
    main()
