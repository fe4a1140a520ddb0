"""The push of Lo Iacono and Santano Guillén (2014): a film's segments, one WebSocket message each.

    python push.py --host ADDRESS --port PORT --root FOLDER

ws://HOST:PORT/PATH names a media playlist below the root, or the folder of an index.m3u8. Whoever
connects is sent what EXT-X-MAP names, then each segment, as fast as the connection takes them, and
the connection is closed with 1000. With ?pace=realtime a segment is sent when it is due to be played.

The paper's server ran on pywebsocket, a thread for each connection; this is the library that Debian
has for WebSockets, on one event loop. What makes the most of it: no compression of what is
compressed, no pings, and segments are read once for everybody.
"""

import argparse
import asyncio
import functools
import logging
import os
import signal
from urllib.parse import parse_qs, unquote, urlsplit

from websockets.legacy.server import serve
from websockets.exceptions import ConnectionClosed

# Segments that are kept in memory: all of the study's film.
KEPT = 1024
# Nothing that a client sends is of interest.
MOST = 1024


class Refused(Exception):
    """There is nothing to push at this path."""


@functools.lru_cache(KEPT)
def content(path):
    with open(path, "rb") as file:
        return file.read()


def inside(root, path):
    """The path with its links resolved, if it is below the root."""
    path = os.path.realpath(path)
    if not path.startswith(root + os.sep) or "\0" in path:
        raise Refused("not below the root")
    return path


@functools.lru_cache(KEPT)
def film(root, name):
    """What is sent of a playlist, in order: when it is due, in seconds, and its file."""
    path = inside(root, root + "/" + name)
    if os.path.isdir(path):
        path = inside(root, path + "/index.m3u8")
    folder = os.path.dirname(path)
    due, duration, messages = 0.0, 0.0, []
    with open(path, encoding="utf-8") as playlist:
        lines = [line.strip() for line in playlist]
    if lines[:1] != ["#EXTM3U"]:
        raise Refused("not a playlist")
    for line in lines:
        if line.startswith(("#EXT-X-BYTERANGE", "#EXT-X-STREAM-INF")):
            raise Refused("not a playlist of whole files")
        if line.startswith("#EXT-X-MAP:"):
            messages.append((due, inside(root, folder + "/" + line.split('URI="', 1)[1].split('"', 1)[0])))
        elif line.startswith("#EXTINF:"):
            duration = float(line[len("#EXTINF:") :].split(",", 1)[0])
        elif line and not line.startswith("#"):
            messages.append((due, inside(root, folder + "/" + unquote(line))))
            due += duration
    return messages


def reason(error):
    """For the client: a sentence, and no path of this machine."""
    return (getattr(error, "strerror", None) or str(error))[:100]


async def push(root, connection):
    url = urlsplit(connection.path)
    in_time = parse_qs(url.query).get("pace") == ["realtime"]
    try:
        messages = film(root, unquote(url.path))
    except (Refused, OSError, ValueError, IndexError) as error:
        await connection.close(1008, reason(error))
        return
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        for due, path in messages:
            if in_time and begun + due > clock():
                await asyncio.sleep(begun + due - clock())
            # Comes back once the connection has room again.
            await connection.send(content(path))
    except ConnectionClosed:
        pass
    except OSError as error:
        await connection.close(1011, reason(error))


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--root", required=True)
    options = parser.parse_args()
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(
        functools.partial(push, os.path.realpath(options.root)),
        options.host,
        options.port,
        backlog=4096,
        compression=None,
        ping_interval=None,
        max_size=MOST,
        close_timeout=1,
    ):
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main())
