#!/bin/sh
# Installs the definitions of OTLP, by which tests decode traces, into target/otlp.
exec "$(dirname "$0")/venv.sh" target/otlp opentelemetry-proto==1.45.2
