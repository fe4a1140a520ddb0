#!/bin/sh
# Checks the files of deploy/ without Docker or Kubernetes: the manifests and the compose file against their schemas, and
# the configurations of nodes and NATS servers by these programs themselves, and the alert rules and the expressions of the
# dashboard by promtool (of Debian's package prometheus). `make test` runs it.
# Usage: [HEADWATER_BIN=PROGRAM] scripts/check-deploy.sh [--install]
set -eu
cd "$(dirname "$0")/.."

scripts/nats.sh
scripts/venv.sh target/deploy kubernetes-validate==1.37.0 compose-spec==0.2.1
[ "${1:-}" != --install ] || exit 0
if [ -z "${HEADWATER_BIN:-}" ]; then
    cargo build -q -p headwater
    target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    HEADWATER_BIN=$target/debug/headwater
fi
exec target/deploy/bin/python scripts/check-deploy.py "$HEADWATER_BIN" target/nats/bin/nats-server
