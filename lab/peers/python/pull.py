"""The pull server of Lo Iacono and Santano Guillén (2014): http.server, a thread for each connection.

    python3 pull.py --host ADDRESS --port PORT --root FOLDER

GET and HEAD of files, single ranges. Connections persist, as HTTP/1.1 has it. What the paper's server
did not have, and what makes the most of the design: files go out by sendfile, a head leaves in one
piece, nothing is logged, and as many connections may wait to be accepted as come at once.
"""

import argparse
import os
import re
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import unquote, urlsplit

TYPES = {
    ".m3u8": "application/vnd.apple.mpegurl",
    ".mpd": "application/dash+xml",
    ".mp4": "video/mp4",
    ".m4s": "video/mp4",
    ".ts": "video/mp2t",
    ".html": "text/html",
}
RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def range_of(header, size):
    """First byte and the one after the last (RFC 9110, 14.1.2); None where there is no such byte."""
    match = RANGE.fullmatch(header or "")
    if not match or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    if not first:
        return (max(size - int(last), 0), size) if int(last) and size else None
    first, end = int(first), min(int(last) + 1, size) if last else size
    if last and int(last) < first:
        return 0, size
    return (first, end) if first < size else None


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    # Heads are gathered, then sent at once; a body's last segment does not wait for an answer.
    wbufsize = -1
    disable_nagle_algorithm = True
    # A peer that is silent for so long holds a thread no more.
    timeout = 300

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, with_body):
        name = unquote(urlsplit(self.path).path)
        path = os.path.realpath(self.server.root + "/" + name.replace("\0", "\ufffd"))
        if not path.startswith(self.server.root + os.sep):
            return self.refuse(HTTPStatus.NOT_FOUND)
        try:
            file = open(path, "rb", buffering=0)
        except OSError:
            return self.refuse(HTTPStatus.NOT_FOUND)
        with file:
            status = os.fstat(file.fileno())
            asked = self.headers.get("Range")
            found = range_of(asked, status.st_size)
            if found is None:
                return self.refuse(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    ("Content-Range", f"bytes */{status.st_size}"),
                )
            first, end = found
            whole = found == (0, status.st_size) and not (asked and RANGE.fullmatch(asked))
            self.send_response(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Type", TYPES.get(os.path.splitext(path)[1], "application/octet-stream"))
            self.send_header("Content-Length", str(end - first))
            self.send_header("Last-Modified", formatdate(status.st_mtime, usegmt=True))
            self.send_header("Accept-Ranges", "bytes")
            if not whole:
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{status.st_size}")
            self.end_headers()
            self.wfile.flush()
            if with_body and end > first:
                self.connection.sendfile(file, first, end - first)

    def refuse(self, status, *headers):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # The peer has gone.

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """All connections."""

    request_queue_size = 4096

    def __init__(self, address, root):
        self.root = os.path.realpath(root)
        super().__init__(address, Handler)

    def server_bind(self):
        # HTTPServer would also look up what the address is called, and wait for it.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--root", required=True)
    options = parser.parse_args()
    Server((options.host, options.port), options.root).serve_forever()


if __name__ == "__main__":
    main()
