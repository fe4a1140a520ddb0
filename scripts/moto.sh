#!/bin/sh
# Installs moto, a server that speaks as Amazon S3 does, which the tests of stores start, into target/moto.
exec "$(dirname "$0")/venv.sh" target/moto "moto[server]==5.2.5"
