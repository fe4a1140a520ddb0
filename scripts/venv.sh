#!/bin/sh
# Installs packages of PyPI into a folder of their own. Needs Python's venv.
# Usage: scripts/venv.sh FOLDER PACKAGE...
set -eu
cd "$(dirname "$0")/.."

home=$1
shift
# Another run may be at it, also one that was interrupted and whose steps go on.
mkdir -p "$(dirname "$home")"
exec 9>"$home.lock"
flock 9
# The file is written last, so it is there only if all is installed.
[ "$(cat "$home/versions" 2>/dev/null)" = "$*" ] && exit 0
python3 -m venv --clear "$home"
# Python compiles the modules that are used, at their first use: those are few.
"$home/bin/pip" install --no-compile --quiet --disable-pip-version-check "$@"
echo "$*" >"$home/versions"
