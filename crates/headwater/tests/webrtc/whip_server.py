"""A WHIP server by aiortc for one publisher. Used by the tests.

  whip_server.py

Prints one JSON object per line: its URL, then, when the publisher has deleted its session, what came
of each kind: the time of each frame in seconds, the MD5 of each picture, and how many packets were lost or came only
when they were asked for. These may be too late for their picture.
"""

import asyncio
import hashlib
import json

from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, RTCSessionDescription

SESSION = "/session"

# How many packets were asked for. aiortc counts a packet as lost only if it never came.
asked = 0
ask = RTCRtpReceiver._send_rtcp_nack


async def count_and_ask(self, media_ssrc, lost):
    global asked
    asked += len(lost)
    await ask(self, media_ssrc, lost)


RTCRtpReceiver._send_rtcp_nack = count_and_ask


def say(**fields):
    print(json.dumps(fields), flush=True)


async def read(reader):
    """Returns a request's method and payload."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method = head.split(" ", 1)[0]
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    return method, (await reader.readexactly(int(fields.get("content-length", 0)))).decode()


async def main():
    peer, tasks, over = RTCPeerConnection(RTCConfiguration([])), [], asyncio.Event()
    seen = {"video": [], "audio": []}

    async def take(track):
        while True:
            try:
                frame = await track.recv()
            except Exception:
                return
            picture = track.kind == "video" and frame.to_ndarray(format="yuv420p").tobytes()
            hashed = picture and hashlib.md5(picture).hexdigest()
            seen[track.kind].append((float(frame.pts * frame.time_base), hashed))

    async def answer(reader, writer):
        method, payload = await read(reader)
        if method == "POST":
            await peer.setRemoteDescription(RTCSessionDescription(payload, "offer"))
            await peer.setLocalDescription(await peer.createAnswer())
            sdp, status = peer.localDescription.sdp, "201 Created"
        else:
            sdp, status = "", "200 OK"
        head = f"HTTP/1.1 {status}\r\nLocation: {SESSION}\r\nContent-Length: {len(sdp)}\r\n\r\n"
        writer.write((head + sdp).encode())
        await writer.drain()
        writer.close()
        if method == "DELETE":
            over.set()

    peer.on("track", lambda track: tasks.append(asyncio.ensure_future(take(track))))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    say(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/whip")
    await over.wait()
    lost = {}
    for receiver in peer.getReceivers():
        for stats in (await receiver.getStats()).values():
            if stats.type == "inbound-rtp":
                lost[stats.kind] = stats.packetsLost + (asked if stats.kind == "video" else 0)
    for kind, frames in seen.items():
        say(kind=kind, frames=frames, lost=lost[kind])
    await peer.close()


asyncio.run(main())
