#!/bin/sh
# Installs openapi-spec-validator, which judges the document of the API, and openapi-python-client, which generates a
# client from it, into target/openapi.
exec "$(dirname "$0")/venv.sh" target/openapi openapi-spec-validator==0.9.0 openapi-python-client==0.29.1
