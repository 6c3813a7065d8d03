"""The OpenAPI document: complete, valid, and true of what the routes answer."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from frontend.app import ROUTES
from frontend.dialects.fields import Honoured
from frontend.openapi import OPERATIONS, document, operation_of
from tests.fakes.serving import serving

DOCUMENT = document(ROUTES)
CASES = 300
BODIES = [
    operation["requestBody"]["content"]["application/json"]["schema"]
    for entry in DOCUMENT["paths"].values()
    for operation in entry.values()
    if "requestBody" in operation
]


def test_every_route_has_one_entry() -> None:
    """And no entry is of a route that is gone."""
    assert list(OPERATIONS) != []
    assert set(OPERATIONS) == {f"{route.method} {route.paths[0]}" for route in ROUTES}
    described = sum(len(entry) for entry in DOCUMENT["paths"].values())
    assert described == sum(len(route.paths) for route in ROUTES)


def test_every_honoured_field_is_in_it() -> None:
    """With the table's own words."""
    for route in ROUTES:
        fields = operation_of(route).fields
        if fields is None:
            continue
        body = DOCUMENT["paths"][route.paths[0]]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(body["properties"]) == set(fields)
        for name, rule in fields.items():
            if isinstance(rule, Honoured) and rule.note:
                assert body["properties"][name]["description"] == rule.note


def test_its_schemas_are_schemas() -> None:
    """Each body and component is a valid JSON schema, and each reference leads somewhere."""
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for schema in BODIES:
        Draft202012Validator.check_schema(schema)
    references = set[str]()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            references.update({value["$ref"]} if isinstance(value.get("$ref"), str) else ())
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(DOCUMENT)
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references - known == set()
    assert references != set()


async def test_it_is_served(runtime_dir: Path) -> None:
    """The document of the application that runs."""
    async with serving(runtime_dir) as served:
        assert await served.get("/openapi.json") == (200, json.loads(json.dumps(DOCUMENT)))
