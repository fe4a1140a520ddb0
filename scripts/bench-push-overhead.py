#!/usr/bin/env python3
"""Measures the overhead of delivering the study's movie: by push, and by pull over HTTP/1.1 and HTTP/2, to
streamgauge, to a client in this script, and to Chromium.

    scripts/bench-push-overhead.py -o DIR [--no-browser] [--headwater PROGRAM] [--streamgauge PROGRAM]

The movie is as long as that of Lo Iacono and Santano Guillén (2014) and about as large: 300 chunks of two
seconds, 6,656,763 bytes. Every client is connected through a relay that counts the bytes in both directions.
The kernel's own count for the relay's sockets (TCP_INFO) must agree. Overhead is everything but the movie's
bytes: heads, playlists, frames, handshakes, and in TLS the records. Needs ffmpeg; h2load (nghttp2-client) and
openssl for HTTP/2; node and Chromium for the browser. Takes about a minute and a half.

Raw figures go to DIR/overhead.json, the table to DIR/overhead.md and standard output.
"""

import argparse
import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

REPOSITORY = Path(__file__).resolve().parent.parent
CHUNKS = 300
SECONDS = 600
# Time limit of a step, in seconds.
LIMIT = 150
# tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info (linux/tcp.h).
BYTES_ACKED = 120


class Relay:
    """Passes connections on to a port of this machine, and counts their bytes."""

    def __init__(self, port):
        self.to = port
        self.down = self.up = self.kernel_down = self.connections = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.threads = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections += 1
            pair = threading.Thread(target=self.pass_on, args=(client, server), daemon=True)
            pair.start()
            self.threads.append(pair)

    def pass_on(self, client, server):
        up = threading.Thread(target=self.pump, args=(client, server, "up"), daemon=True)
        up.start()
        self.pump(server, client, "down")
        up.join()
        info = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        _, received = struct.unpack_from("=QQ", info, BYTES_ACKED)
        with self.lock:
            self.kernel_down += received
        client.close()
        server.close()

    def pump(self, source, sink, direction):
        while True:
            try:
                data = source.recv(1 << 18)
                if data:
                    sink.sendall(data)
            except OSError:
                data = b""
            if not data:
                break
            with self.lock:
                setattr(self, direction, getattr(self, direction) + len(data))
        for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
            try:
                end.shutdown(how)
            except OSError:
                pass

    def figures(self):
        """Returns the counts, once all connections are closed."""
        self.listener.close()
        for thread in self.threads:
            thread.join(10)
        # What the server sends after the client has gone, mainly the end of TLS, is not passed on.
        if not 0 <= self.kernel_down - self.down <= 64 * self.connections:
            sys.exit(f"the relay passed {self.down} bytes on, the kernel received {self.kernel_down}")
        return {"received": self.down, "sent": self.up, "kernel_received": self.kernel_down,
                "connections": self.connections}


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT,
                          check=False, **options)
    return done


def movie(path):
    """Makes the movie with the study's structure: a keyframe every two seconds."""
    done = run("ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
               f"testsrc2=size=320x240:rate=24:duration={SECONDS}", "-vf", "noise=alls=6:allf=t:all_seed=5",
               "-c:v", "libx264", "-preset", "ultrafast", "-b:v", "87k", "-maxrate", "115k", "-bufsize", "220k",
               "-g", "48", "-keyint_min", "48", "-sc_threshold", "0", "-pix_fmt", "yuv420p",
               "-movflags", "+faststart", path)
    if done.returncode:
        sys.exit(done.stderr)


class Origin:
    """The server. It also has TLS where openssl is installed."""

    def __init__(self, program, work):
        tls = ""
        if shutil.which("openssl"):
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", work / "key.pem", "-out", work / "certificate.pem", "-days", "2", "-subj",
                "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
            tls = (f'[http.tls]\nlisten = "127.0.0.1:0"\ncertificate = "{work}/certificate.pem"\n'
                   f'key = "{work}/key.pem"\n')
        (work / "headwater.toml").write_text(
            f'[http]\nlisten = "127.0.0.1:0"\n[rtmp]\nlisten = "127.0.0.1:0"\n[vod]\nroot = "{work}/vod"\n' + tls)
        self.process = subprocess.Popen([program, "serve", "--config", str(work / "headwater.toml")],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "HEADWATER_LOG": "warn"})
        ready = self.process.stdout.readline()
        ports = dict(re.findall(r"(\w+)=\S*?:(\d+)", ready))
        if "http" not in ports:
            sys.exit(f"headwater: {ready}{self.process.stderr.read()}")
        self.http = int(ports["http"])
        self.tls = next((int(port) for name, port in ports.items() if name in ("https", "tls")), None)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(12)
        except subprocess.TimeoutExpired:
            self.process.kill()


def segments(base):
    """Returns the playlists and their length, and every file of the film with its length: the header, then the
    chunks."""
    def text(url):
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.read().decode()
    index = base + "/index.m3u8"
    variant = next(line for line in text(index).splitlines() if line and not line.startswith("#"))
    media = urljoin(index, variant)
    names = []
    for line in text(media).splitlines():
        if match := re.match(r'#EXT-X-MAP:.*URI="([^"]+)"', line):
            names.append(match[1])
        elif line and not line.startswith("#"):
            names.append(line)
    files = []
    for name in dict.fromkeys(names):
        with urllib.request.urlopen(urljoin(media, name), timeout=30) as answer:
            files.append((urljoin(media, name), len(answer.read())))
    return [index, media], len(text(index)) + len(text(media)), files


def streamgauge(program, url, folder, *more):
    done = run(program, "viewers", url, "--batches", 1, "--batch-size", 1, "--duration", "60s", "--ahead", "0s",
               "--at-least", "0", "--verify", "full", "--json", "-o", folder, *more)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{url}: {done.stderr}")
    viewers = json.loads(done.stdout)["viewers"]
    if viewers["errors"]:
        sys.exit(f"{url}: {viewers['examples']}")
    kinds = viewers["requests_by_kind"]
    return {"media": viewers["media_bytes"], "chunks": kinds.get("segment", {}).get("count"),
            "own_received": viewers["media_bytes"] + viewers["overhead_bytes"], "own_sent": viewers["sent_bytes"]}


def own_push(port, path):
    """A client of push that follows only the RFC: it counts what frames add to chunks."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                            "Sec-WebSocket-Protocol: headwater.v1\r\n\r\n").encode())
        stream = connection.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                sys.exit("no answer to the handshake")
            head += line
        if not head.startswith(b"HTTP/1.1 101 "):
            sys.exit(f"{path}: {head.decode().splitlines()[0]}")
        figures = {"handshake": len(head), "texts": 0, "text_bytes": 0, "media": 0, "frames": {}}
        while True:
            first, second = stream.read(2)
            length, size = second & 127, 2
            if length > 125:
                size += 2 if length == 126 else 8
                length = int.from_bytes(stream.read(size - 2), "big")
            payload = stream.read(length)
            opcode = first & 15
            if opcode == 2:
                figures["media"] += length
                figures["frames"][size] = figures["frames"].get(size, 0) + 1
            elif opcode == 1:
                figures["texts"] += 1
                figures["text_bytes"] += size + length
            elif opcode == 8:
                figures["code"] = int.from_bytes(payload[:2], "big")
                break
            elif opcode == 9:
                mask = os.urandom(4)
                masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
                connection.sendall(bytes([0x8A, 0x80 | length]) + mask + masked)
        # The first frame is the header.
        figures["chunks"] = sum(figures["frames"].values()) - 1
        return figures


def h2load(work, port, lists, files):
    """Fetches every file, one after the other on one connection, over HTTP/2 with TLS."""
    urls = [re.sub(r"^http://[^/]+", f"https://127.0.0.1:{port}", url)
            for url in [*lists, *(url for url, _ in files)]]
    (work / "urls").write_text("\n".join(urls) + "\n")
    done = run("h2load", "-i", work / "urls", "-n", len(urls), "-c", 1, "-m", 1)
    if f"{len(urls)} succeeded" not in done.stdout:
        sys.exit(done.stdout + done.stderr)
    traffic = re.search(r"\((\d+)\) total,.*?\((\d+)\) headers.*?\((\d+)\) data", done.stdout)
    total, headers, data = map(int, traffic.groups())
    return {"media": sum(length for _, length in files), "chunks": len(files) - 1, "without_tls": total,
            "h2_headers": headers, "h2_data": data}


def browser(page, kind, url):
    done = run("node", "bench/overhead.mjs", page, kind, url, cwd=REPOSITORY / "web")
    if done.returncode:
        sys.exit(f"Chromium, {url}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--headwater", default=os.environ.get("HEADWATER", built / "headwater"))
    parser.add_argument("--streamgauge", default=os.environ.get("STREAMGAUGE", built / "streamgauge"))
    parser.add_argument("--no-browser", action="store_true")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="overhead-"))
    origin = None
    try:
        (work / "vod").mkdir()
        movie(work / "vod/movie.mp4")
        origin = Origin(asked.headwater, work)
        measure(asked, work, origin)
    finally:
        if origin:
            origin.stop()
        shutil.rmtree(work, ignore_errors=True)


def measure(asked, work, origin):
    film, push = "/vod/movie.mp4", "/vod/movie.mp4/push?pace=fast&latency=segment"
    lists, playlists, files = segments(f"http://127.0.0.1:{origin.http}{film}")
    sizes = [length for _, length in files[1:]]
    movie_is = {"playlists": playlists, "chunks": len(sizes), "bytes": sum(sizes), "header": files[0][1],
                "chunks_over_64_kib": sum(size > 65535 for size in sizes)}
    page, rows = f"http://127.0.0.1:{origin.http}/healthz", []

    def case(name, client, port, take):
        relay = Relay(port)
        begun = time.monotonic()
        figures = take(relay.port)
        seconds = time.monotonic() - begun
        row = {"delivery": name, "client": client, "seconds": round(seconds, 2), **figures, **relay.figures()}
        row["overhead_received"] = row["received"] - row["media"]
        row["overhead"] = row["overhead_received"] + row["sent"]
        row["a_chunk"] = row["overhead"] / movie_is["chunks"]
        row["percent"] = row["overhead"] / row["media"] * 100
        rows.append(row)

    kept = asked.out / "streamgauge"
    case("push", "by the RFC", origin.http, lambda port: own_push(port, push))
    case("push", "streamgauge", origin.http,
         lambda port: streamgauge(asked.streamgauge, f"ws://127.0.0.1:{port}{push}", kept / "push"))
    case("HTTP/1.1", "streamgauge", origin.http,
         lambda port: streamgauge(asked.streamgauge, f"http://127.0.0.1:{port}{film}/index.m3u8", kept / "pull"))
    if origin.tls and shutil.which("h2load"):
        case("HTTP/2, TLS", "h2load", origin.tls, lambda port: h2load(work, port, lists, files))
        case("HTTP/1.1, TLS", "streamgauge", origin.tls,
             lambda port: streamgauge(asked.streamgauge, f"https://127.0.0.1:{port}{film}/index.m3u8",
                                      kept / "pull-tls", "--insecure"))
        case("push, TLS", "streamgauge", origin.tls,
             lambda port: streamgauge(asked.streamgauge, f"wss://127.0.0.1:{port}{push}", kept / "push-tls",
                                      "--insecure"))
    if not asked.no_browser:
        case("push", "Chromium", origin.http, lambda port: browser(page, "push", f"ws://127.0.0.1:{port}{push}"))
        case("HTTP/1.1", "Chromium", origin.http,
             lambda port: browser(page, "pull", f"http://127.0.0.1:{port}{film}/index.m3u8"))
        if origin.tls:
            case("HTTP/2, TLS", "Chromium", origin.tls,
                 lambda port: browser(page, "pull", f"https://127.0.0.1:{port}{film}/index.m3u8"))
    document = {"movie": movie_is, "published": {"pull_percent": 3.3, "push_percent": 0.02}, "cases": rows}
    (asked.out / "overhead.json").write_text(json.dumps(document, indent=1) + "\n")
    table = render(movie_is, rows)
    (asked.out / "overhead.md").write_text(table)
    print(table, end="")


def render(movie_is, rows):
    lines = [f"{movie_is['chunks']} chunks, {movie_is['bytes']:,} bytes; {movie_is['chunks_over_64_kib']} of them longer "
             f"than 64 KiB. Beside the movie are handshakes and, by pull, {movie_is['playlists']:,} bytes of playlists.", "",
             "| delivery | client | received | sent | beside the movie | a chunk | of the movie |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['delivery']} | {row['client']} | {row['received']:,} | {row['sent']:,} "
                     f"| {row['overhead']:,} | {row['a_chunk']:.1f} | {row['percent']:.3f} % |")
    for row in rows:
        if frames := row.get("frames"):
            bare = sum(size * count for size, count in frames.items()) - min(frames)
            lines += ["", f"Frames of chunks alone: {bare:,} bytes, {bare / movie_is['chunks']:.2f} a chunk, "
                      f"{bare / row['media'] * 100:.3f} % (by heads: {frames}); handshake {row['handshake']}, "
                      f"texts {row['text_bytes']} bytes."]
        elif "without_tls" in row:
            bare = row["without_tls"] - row["media"]
            lines += ["", f"HTTP/2 without TLS, received: {bare:,} bytes beside the movie (heads "
                      f"{row['h2_headers']:,}), {bare / movie_is['chunks']:.1f} a chunk."]
        elif (seen := row.get("devtools")) and not seen["frames"]:
            lines += ["", f"DevTools, {row['delivery']}: {seen['requests']} answers by {seen['protocols']}, "
                      f"{seen['finished'] - row['media']:,} bytes received beside the movie."]
        elif seen:
            lines += ["", f"DevTools, push: {seen['frames']} messages of {seen['payload']:,} bytes, handshake "
                      f"{seen['upgrade']} bytes."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
