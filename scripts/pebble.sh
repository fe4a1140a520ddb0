#!/bin/sh
# Builds a newer pebble than Debian has into target/pebble: one that tells when certificates are to be renewed (RFC
# 9773). Where Go is too old for it, it says so and succeeds; the test of that then says that it is left out.
set -eu
cd "$(dirname "$0")/.."

case $(GOTOOLCHAIN=local go env GOVERSION) in
go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.2[0-3]*)
    echo "pebble needs Go 1.24"
    exit 0
    ;;
esac
mkdir -p target/pebble
program=$PWD/target/pebble/pebble
cd crates/headwater/tests/acme/pebble
# No other version of Go is fetched. Nothing is built where this version is there.
GOTOOLCHAIN=local exec go build -buildvcs=false -o "$program" github.com/letsencrypt/pebble/v2/cmd/pebble
