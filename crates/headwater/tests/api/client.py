"""Uses the API by a client that another program generates from the document: nobody wrote it for this server.

Usage: client.py DOCUMENT URL

DOCUMENT is the server's, and `live/demo` is live there. Follows a viewer by FLV from the list of sessions to its end.
Prints nothing, and fails where the server is not as the client expects.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

document, url = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
generate = Path(sys.executable).parent / "openapi-python-client"
options = ["--path", document, "--output-path", f"{folder.name}/headwater_api", "--meta", "none"]
subprocess.run([generate, "generate", *options], check=True, stdout=sys.stderr)
sys.path.insert(0, folder.name)

from headwater_api import Client
from headwater_api.api.health import get_history, is_ready
from headwater_api.api.sessions import end_session, list_sessions
from headwater_api.api.streams import get_stream, list_streams
from headwater_api.api.titles import list_titles
from headwater_api.models import Problem, SessionAction


def until(ask, is_so):
    """Asks until the answer is as it should be. Whoever runs this program limits its time."""
    while not is_so(answer := ask()):
        time.sleep(0.05)
    return answer


client = Client(base_url=url, raise_on_unexpected_status=True)
assert is_ready.sync_detailed(client=client).status_code == 200

overview = list_streams.sync(client=client)
assert "live/demo" in [stream.name for stream in overview.streams], overview
demo = get_stream.sync(client=client, name="demo")
assert demo.state == "live" and demo.tracks, demo
missing = get_stream.sync(client=client, name="none")
assert isinstance(missing, Problem) and missing.status == 404, missing
assert list_titles.sync(client=client).titles == []
assert get_history.sync(client=client).processors > 0

viewer = urllib.request.urlopen(f"{url}/live/demo/live.flv")
assert viewer.read(3) == b"FLV"
wanted = {"stream": "live/demo", "protocol": "flv", "action": SessionAction.PLAY}
# Its bytes are counted after they were sent.
found = until(lambda: list_sessions.sync(client=client, **wanted).sessions, lambda it: it[0].bytes_ > 0)
assert len(found) == 1, found
assert end_session.sync_detailed(client=client, id=found[0].id).status_code == 204
try:
    while viewer.read(1 << 16):
        pass
except (OSError, HTTPException):
    pass
ended = until(lambda: list_sessions.sync(client=client, ended=True, **wanted).sessions, len)
assert [session.id for session in ended] == [found[0].id], ended
assert "administrator" in ended[0].ended.reason, ended
