"""A film's segments, as the push servers beside this file send them."""

import functools
import os
from urllib.parse import unquote

# Segments that are kept in memory: all of the study's film.
KEPT = 1024


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
