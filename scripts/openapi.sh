#!/bin/sh
# Installs openapi-spec-validator, which judges the document of the API, into target/openapi.
exec "$(dirname "$0")/venv.sh" target/openapi openapi-spec-validator==0.9.0
