"""A WHIP server by aiortc for one publisher. Used by the tests.

  whip_server.py

Prints one JSON object per line: its URL, then, when the publisher has deleted its session and all is taken that had
come, each kind: the time of each frame in seconds, and the MD5 of each picture.
"""

import asyncio
import hashlib
import json
import select
import socket

from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

SESSION = "/session"

# The most bytes of datagrams that may wait. Linux allows so many everywhere, and doubles them.
WAITING = 212_992


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

    def sockets():
        protocols = peer.getReceivers()[0].transport.transport._connection._protocols
        return [protocol.transport.get_extra_info("socket") for protocol in protocols]

    async def until_taken():
        """The loop takes one datagram a turn. Requests overtake datagrams where it was not run for a while."""
        dtls = peer.getReceivers()[0].transport
        waiting = dtls.transport._connection._queue
        # Nothing more is taken when the publisher has closed the session of DTLS, which it does after all media.
        while dtls.state != "closed" and (select.select(sockets(), [], [], 0)[0] or not waiting.empty()):
            await asyncio.sleep(0.01)

    async def answer(reader, writer):
        method, payload = await read(reader)
        if method == "POST":
            await peer.setRemoteDescription(RTCSessionDescription(payload, "offer"))
            await peer.setLocalDescription(await peer.createAnswer())
            for of_peer in sockets():
                of_peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAITING)
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
    await until_taken()
    # The tracks end when their decoders have done all that was taken.
    await peer.close()
    await asyncio.gather(*tasks)
    for kind, frames in seen.items():
        say(kind=kind, frames=frames)


asyncio.run(main())
