"""Viewers by push (docs/push.md) that note when each chunk comes. scripts/bench-cluster.py uses them.

All viewers are in one thread of one process, so their times are of one clock.
"""

import base64
import json
import os
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Viewer:
    """One connection."""

    url: str
    # When each chunk had come, in seconds of the monotonic clock, and what tells it from others. Nodes send the same
    # bytes.
    chunks: list = field(default_factory=list)
    # What the server said, by JSON, and when.
    events: list = field(default_factory=list)
    # When the connection ended, if it did.
    ended: float = None
    connection: socket.socket = None
    buffer: bytearray = field(default_factory=bytearray)

    def connect(self):
        """Begins to watch. Raises OSError if the server does not agree."""
        url = urlsplit(self.url)
        self.connection = socket.create_connection((url.hostname, url.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.connection.sendall((f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\n"
                                 f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                                 "Sec-WebSocket-Protocol: headwater.v1\r\n\r\n").encode())
        head = bytearray()
        while b"\r\n\r\n" not in head:
            data = self.connection.recv(4096)
            if not data:
                raise OSError(f"{self.url}: closed before it answered")
            head += data
        head, _, rest = bytes(head).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise OSError(f"{self.url}: {head.decode(errors='replace').splitlines()[0]}")
        self.buffer += rest
        self.connection.setblocking(False)

    def read(self):
        """Takes what has come. Returns whether the connection goes on."""
        try:
            while data := self.connection.recv(1 << 18):
                self.buffer += data
        except BlockingIOError:
            return self.take(time.monotonic())
        except OSError:
            pass
        self.take(time.monotonic())
        self.ended = time.monotonic()
        return False

    def take(self, now):
        """Takes whole messages out of the buffer. The server sends each in one frame (RFC 6455, 5.2)."""
        while len(self.buffer) >= 2:
            opcode, length, size = self.buffer[0] & 15, self.buffer[1] & 127, 2
            if length > 125:
                size = 4 if length == 126 else 10
                length = int.from_bytes(self.buffer[2:size], "big")
            if len(self.buffer) < size + length:
                break
            payload = bytes(self.buffer[size:size + length])
            del self.buffer[:size + length]
            if opcode == 2:
                self.chunks.append((now, (length, hash(payload))))
            elif opcode == 1:
                self.events.append((now, json.loads(payload)))
            elif opcode == 9:
                mask = os.urandom(4)
                masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
                self.connection.send(bytes([0x8A, 0x80 | length]) + mask + masked)
            elif opcode == 8:
                self.ended = now
                return False
        return True


class Watching:
    """A thread in which viewers watch. A context: the viewers go at its end."""

    def __init__(self, urls):
        self.viewers = [Viewer(url) for url in urls]
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        for viewer in self.viewers:
            viewer.connect()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()
        for viewer in self.viewers:
            viewer.connection.close()

    def run(self):
        with selectors.DefaultSelector() as selector:
            for viewer in self.viewers:
                selector.register(viewer.connection, selectors.EVENT_READ, viewer)
            while not self.stopped.is_set():
                for ready, _ in selector.select(0.1):
                    if not ready.data.read():
                        selector.unregister(ready.fileobj)
