#!/bin/sh
# Builds the pages that the origin embeds, web/dist. Usage: scripts/web.sh [install]
# With `install`, stops after installing the packages.
set -eu
cd "$(dirname "$0")/../web"

# `npm ci` reinstalls everything, so it runs only when the lock file has changed.
if [ ! -f node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --no-audit --no-fund
fi
[ "${1:-}" = install ] || npm run build
