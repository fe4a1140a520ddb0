"""Judges the document of the API by other hands' programs: is it OpenAPI 3.1, and are answers as it says?

Usage: check.py DOCUMENT ANSWERS

ANSWERS is a list of objects: `method` in small letters, `path` as in the document, `status`, `headers` (names in small
letters) and `body`. Prints what is wrong, and exits with 1.
"""

import json
import sys

from openapi_schema_validator import OAS31Validator, oas31_format_checker
from openapi_spec_validator import OpenAPIV31SpecValidator

document, answers = (json.load(open(path)) for path in sys.argv[1:])
wrong = [f"document: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]


def resolved(it):
    """Follows a reference to another part of the document."""
    while "$ref" in it:
        place, it = it["$ref"], document
        for name in place.removeprefix("#/").split("/"):
            it = it[name]
    return it


def check(where, schema, value):
    # With the components beside it, a schema finds those that it refers to.
    whole = {"allOf": [schema], "components": document["components"]}
    for error in OAS31Validator(whole, format_checker=oas31_format_checker).iter_errors(value):
        wrong.append(f"{where}: {error.json_path}: {error.message}")


def kind(content_type):
    return content_type.split(";")[0].strip()


def is_json(name):
    return name in ("application/json", "application/problem+json")


operations = {
    (method, path): operation
    for path, item in document["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
}

for (method, path), operation in operations.items():
    for status, response in operation["responses"].items():
        for name, media in resolved(response).get("content", {}).items():
            where = f"example of {method} {path} {status}"
            if "example" in media:
                check(where, media["schema"], media["example"])
            else:
                wrong.append(f"{where}: there is none")

for answer in answers:
    method, path, status, headers = (answer[name] for name in ("method", "path", "status", "headers"))
    where = f"{method} {path} {status}"
    responses = operations.get((method, path), {"responses": {}})["responses"]
    if str(status) not in responses:
        wrong.append(f"{where}: not documented: {answer['body']}")
        continue
    response = resolved(responses[str(status)])
    for name, header in response.get("headers", {}).items():
        header = resolved(header)
        if name.lower() in headers:
            value = headers[name.lower()]
            # A header is text.
            is_number = header["schema"].get("type") == "integer" and value.isdecimal()
            check(f"{where}: {name}", header["schema"], int(value) if is_number else value)
        elif header.get("required"):
            wrong.append(f"{where}: no {name}")
    content = response.get("content", {})
    if not content:
        if answer["body"]:
            wrong.append(f"{where}: a body that is not documented: {answer['body']}")
        continue
    name = kind(headers.get("content-type", ""))
    if name not in content:
        wrong.append(f"{where}: of type {name}")
        continue
    check(where, content[name]["schema"], json.loads(answer["body"]) if is_json(name) else answer["body"])

print("\n".join(wrong))
sys.exit(bool(wrong))
