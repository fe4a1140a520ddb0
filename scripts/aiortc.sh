#!/bin/sh
# Installs aiortc, a WebRTC implementation that judges ours, into target/aiortc. Needs Python's venv.
set -eu
cd "$(dirname "$0")/.."

home=target/aiortc
versions="aiortc==1.16.0 av==18.1.0 numpy==2.4.6"
# The file is written last, so it is there only if all is installed.
[ "$(cat "$home/versions" 2>/dev/null)" = "$versions" ] && exit 0
python3 -m venv --clear "$home"
# The words are packages, so splitting is intended.
# shellcheck disable=SC2086
"$home/bin/pip" install --quiet --disable-pip-version-check $versions
echo "$versions" >"$home/versions"
