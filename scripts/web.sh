#!/bin/sh
# Builds the pages that the origin embeds, web/dist. Usage: scripts/web.sh [install]
# With `install`, stops after the packages are in place.
set -eu
cd "$(dirname "$0")/../web"

# `npm ci` starts from nothing each time; it is needed only where the lock file has changed since.
if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --no-audit --no-fund
fi
[ "${1:-}" = install ] || npm run build
