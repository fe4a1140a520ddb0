"""Decodes requests to a collector by the protocol's own definitions: OTLP/JSON, as opentelemetry-proto has it.

Usage: decode.py FILE

FILE has a request in each line. Prints its spans, one JSON object a line. A field that the protocol does not have is an
error. The ids of OTLP/JSON are hexadecimal, which differs from the JSON of protobuf (OTLP, "JSON Protobuf Encoding").
"""

import base64
import json
import sys

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def with_bytes(it):
    if isinstance(it, list):
        return [with_bytes(value) for value in it]
    if not isinstance(it, dict):
        return it
    is_id = ("traceId", "spanId", "parentSpanId")
    value = lambda name, it: base64.b64encode(bytes.fromhex(it)).decode() if name in is_id else with_bytes(it)
    return {name: value(name, it) for name, it in it.items()}


def attributes(it):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in it}


for line in open(sys.argv[1]):
    request = Parse(json.dumps(with_bytes(json.loads(line))), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        service = attributes(resource.resource.attributes)
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
            print(json.dumps({
                "service": service,
                "trace": span.trace_id.hex(),
                "id": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "name": span.name,
                "kind": span.kind,
                "start": span.start_time_unix_nano,
                "end": span.end_time_unix_nano,
                "attributes": attributes(span.attributes),
                "error": span.status.message if span.status.code == 2 else None,
            }))
