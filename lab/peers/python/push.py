"""The push of Lo Iacono and Santano Guillén (2014): a film's segments, one WebSocket message each.

    python push.py --host ADDRESS --port PORT --root FOLDER

ws://HOST:PORT/PATH names a media playlist below the root, or the folder of an index.m3u8. Whoever
connects is sent what EXT-X-MAP names, then each segment, as fast as the connection takes them, and
the connection is closed with 1000. With ?pace=realtime a segment is sent when it is due to be played.

The paper's server ran on pywebsocket, a thread for each connection, as push_threads.py beside this does; this
is the library that Debian has for WebSockets, on one event loop. What makes the most of it: no compression of what is
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

from film import Refused, content, film, reason

# Nothing that a client sends is of interest.
MOST = 1024


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
