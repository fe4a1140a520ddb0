#!/bin/sh
# Installs Azurite, a server that speaks as Azure Blob Storage does, into target/azurite: 190 MB.
cd "$(dirname "$0")/.." || exit 1
# npm does nothing if this version is there.
exec npm install --loglevel=error --no-audit --no-fund --prefix target/azurite azurite@3.35.0
