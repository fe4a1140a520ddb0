"""The push of Lo Iacono and Santano Guillén (2014) as the paper's server did it: a thread for each connection.

    python push_threads.py --host ADDRESS --port PORT --root FOLDER

It sends what push.py beside it sends, and for the same addresses. The paper's server ran on pywebsocket, which
writes each message with a blocking send. Here the WebSocket itself (RFC 6455) is by hand, because the library
that Debian has for threads is for another version: the handshake, unmasked binary frames, and the close.
"""

import argparse
import base64
import hashlib
import os
import signal
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from film import Refused, content, film, reason

KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE = 0x82, 0x88


def frame(kind, payload):
    """The head of a frame, and what it carries."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", kind, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", kind, 126, size)
    else:
        head = struct.pack("!BBQ", kind, 127, size)
    return head + payload


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # A peer that is silent for so long holds a thread no more.
    timeout = 300

    def do_GET(self):
        self.close_connection = True
        key = self.headers.get("Sec-WebSocket-Key")
        if not key or self.headers.get("Upgrade", "").lower() != "websocket":
            self.send_error(426)
            return
        accept = base64.b64encode(hashlib.sha1((key + KEY).encode()).digest()).decode()
        self.send_response_only(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        try:
            self.push()
        except OSError:
            # The client has gone.
            pass

    def push(self):
        url = urlsplit(self.path)
        in_time = parse_qs(url.query).get("pace") == ["realtime"]
        begun = time.monotonic()
        try:
            messages = film(self.server.root, unquote(url.path))
        except (Refused, OSError, ValueError, IndexError) as error:
            return self.finish(1008, reason(error))
        for due, path in messages:
            if in_time:
                time.sleep(max(0, begun + due - time.monotonic()))
            try:
                data = content(path)
            except OSError as error:
                return self.finish(1011, reason(error))
            self.connection.sendall(frame(BINARY, data))
        self.finish(1000, "")

    def finish(self, code, why):
        # A control frame has at most 125 bytes (RFC 6455 5.5).
        why = why.encode()[:123].decode(errors="ignore").encode()
        self.connection.sendall(frame(CLOSE, struct.pack("!H", code) + why))
        # The client closes once it has read the close.
        self.connection.settimeout(1)
        self.connection.shutdown(socket.SHUT_WR)
        while self.connection.recv(4096):
            pass

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 4096
    daemon_threads = True

    def handle_error(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--root", required=True)
    options = parser.parse_args()
    # A thread needs no more than this: thousands of them fit into memory.
    threading.stack_size(256 << 10)
    server = Server((options.host, options.port), Handler)
    server.root = os.path.realpath(options.root)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    server.serve_forever()


if __name__ == "__main__":
    main()
