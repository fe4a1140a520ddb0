"""Publishes to a WHIP endpoint or plays from a WHEP endpoint with aiortc. Used by the tests.

  peer.py publish|publish-plain|see|hear|hold URL [ADDRESS RELAY]

`see` plays until it has enough of the video, `hear` until it has enough of both video and audio, and `hold` does not
end by itself. `publish` ends when it gets SIGTERM; `publish-plain` does the same, and offers no RTX. Players last no
longer than LONGEST, and publishers no longer than PUBLISHES. The peer sends to the relay's port in the place of the
server's, if both are given. Prints one JSON object per line: what was agreed, then what came.
"""

import asyncio
import contextvars
import datetime
import fractions
import json
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import av
import numpy
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
    clock,
)
from aiortc.rtp import RtcpSrPacket

VIDEO = fractions.Fraction(1, 90_000)
AUDIO = fractions.Fraction(1, 48_000)

# Some 65 small packets a second. Those of 6 s fit into a socket's buffer where Linux does not run a process for so
# long, and those of video are fewer than the 100 that the server can ask for again.
FRAME = fractions.Fraction(1, 15)

# Frames of a kind that a player waits for.
ENOUGH = 150

# In seconds.
LONGEST = 70
PUBLISHES = 300


def say(**fields):
    print(json.dumps(fields), flush=True)


# When the frame that a task sends was due. A busy machine encodes and sends late, video and audio
# differently. Sender reports that told those times would put them apart.
DUE = contextvars.ContextVar("due")


def due_time():
    return datetime.datetime.fromtimestamp(DUE.get(time.time()), datetime.timezone.utc)


# Reports are made of this, in the task that sends.
clock.current_datetime = due_time


class Steady(MediaStreamTrack):
    """Frames at regular times from one common start."""

    def __init__(self, start, duration):
        super().__init__()
        self.start, self.duration, self.number = start, duration, 0

    async def due(self):
        at = self.start + float(self.number * self.duration)
        await asyncio.sleep(max(0, at - time.time()))
        DUE.set(at)
        self.number += 1
        return self.number - 1


class Picture(Steady):
    """White for the first quarter of each second, otherwise a grey that changes."""

    kind = "video"

    def __init__(self, start):
        super().__init__(start, FRAME)

    async def recv(self):
        number = await self.due()
        value = 235 if number % 15 < 4 else 40 + number % 15
        frame = av.VideoFrame.from_ndarray(
            numpy.full((240, 320, 3), value, numpy.uint8), format="bgr24"
        )
        frame.pts, frame.time_base = int(number * FRAME / VIDEO), VIDEO
        return frame


class Sound(Steady):
    """A tone in the first quarter of each second, otherwise silence."""

    kind = "audio"

    def __init__(self, start):
        super().__init__(start, fractions.Fraction(960, 48_000))

    async def recv(self):
        number = await self.due()
        first = number * 960
        times = numpy.arange(first, first + 960)
        on = (times % 48_000) < 48_000 * 4 // 15
        tone = (numpy.sin(times * 2 * numpy.pi * 440 / 48_000) * 12_000 * on).astype(numpy.int16)
        frame = av.AudioFrame.from_ndarray(numpy.repeat(tone, 2)[None], layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, first, AUDIO
        return frame


def ask(url, method, body=None, kind="application/sdp", headers=None):
    request = urllib.request.Request(url, method=method, data=body and body.encode())
    if body:
        request.add_header("Content-Type", kind)
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


async def agree(peer, url):
    await peer.setLocalDescription(await peer.createOffer())
    offer = peer.localDescription.sdp
    status, headers, answer = await asyncio.to_thread(ask, url, "POST", offer)
    if len(sys.argv) > 4:
        answer = answer.replace(*(f" {port} typ host" for port in sys.argv[3:5]))
    if status != 201:
        say(status=status, why=answer)
        sys.exit(3)
    await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
    say(status=status, location=headers["location"])
    return urllib.parse.urljoin(url, headers["location"])


def only(transceiver, name, rtx=True):
    codecs = RTCRtpSender.getCapabilities(transceiver.kind).codecs
    names = (name, f"{transceiver.kind}/rtx") if rtx else (name,)
    wanted = [codec for codec in codecs if codec.mimeType.lower() in names]
    transceiver.setCodecPreferences(wanted)


async def publish(url, rtx=True):
    peer, start = RTCPeerConnection(RTCConfiguration([])), time.time() + 0.5
    for track, codec in ((Picture(start), "video/h264"), (Sound(start), "audio/opus")):
        only(peer.addTransceiver(track, direction="sendonly"), codec, rtx)
    session = await agree(peer, url)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), PUBLISHES)
    except TimeoutError:
        pass
    status, _, _ = await asyncio.to_thread(ask, session, "DELETE")
    say(deleted=status)
    await peer.close()


def note_reports(receiver, kind, rate, starts):
    """Notes when the first frame was captured, by the sender reports (RFC 3550 6.4.1)."""
    handle = receiver._handle_rtcp_packet

    async def note(packet):
        # Frames' times count from this RTP time.
        origin = receiver._RTCRtpReceiver__timestamp_mapper._origin
        if isinstance(packet, RtcpSrPacket) and origin is not None:
            report = packet.sender_info
            since = (report.rtp_timestamp - origin + 2**31) % 2**32 - 2**31
            starts[kind] = report.ntp_timestamp / 2**32 - since / rate
        await handle(packet)

    receiver._handle_rtcp_packet = note


async def play(url, *wanted):
    peer, tasks, began = RTCPeerConnection(RTCConfiguration([])), [], time.time()
    seen, starts = {"video": [], "audio": []}, {}

    async def take(track):
        while True:
            try:
                frame = await track.recv()
            except Exception:
                return
            if track.kind == "video":
                level = float(frame.to_ndarray(format="gray").mean())
            else:
                level = float(numpy.abs(frame.to_ndarray().astype(int)).mean())
            seen[track.kind].append((float(frame.pts * frame.time_base), level))

    peer.on("track", lambda track: tasks.append(asyncio.ensure_future(take(track))))
    for kind, codec, rate in (("video", "video/h264", 90_000), ("audio", "audio/opus", 48_000)):
        transceiver = peer.addTransceiver(kind, direction="recvonly")
        note_reports(transceiver.receiver, kind, rate, starts)
        only(transceiver, codec)
    session = await agree(peer, url)
    while time.time() < began + LONGEST and not all(
        len(seen.get(kind, [])) >= ENOUGH and kind in starts for kind in wanted
    ):
        await asyncio.sleep(0.1)
    for kind, frames in seen.items():
        say(kind=kind, frames=len(frames), start=starts.get(kind), seen=frames)
    status, _, _ = await asyncio.to_thread(ask, session, "DELETE")
    say(deleted=status)
    await peer.close()


if __name__ == "__main__":
    what, url = sys.argv[1:3]
    wanted = {"see": ["video"], "hear": ["video", "audio"], "hold": ["more"]}.get(what)
    asyncio.run(play(url, *wanted) if wanted else publish(url, rtx=what == "publish"))
