"""The OpenAPI document: complete, valid, and true of what the routes answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from frontend.app import ROUTES
from frontend.dialects.fields import Honoured
from frontend.errors import RequestError
from frontend.openapi import OPERATIONS, document, operation_of
from tests.fakes.serving import serving
from tests.frontend.dialects.every_field import DIALECTS, VALUES, Spoken

DOCUMENT = document(ROUTES)
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


# What their values hold, or what they need beside them, is only known to who reads them.
DEEPER = {
    *("messages", "prompt", "system", "tools", "tool_choice", "response_format", "structured_outputs"),
    *("guided_json", "json_schema", "text", "reasoning", "thinking", "output_config", "output_format"),
    *("stream_options", "top_logprobs", "continue_final_message", "max_tokens", "max_completion_tokens"),
    *("max_output_tokens", "chat_template_kwargs"),
}
# Taken with a previous_response_id.
EMPTY = [("input", []), ("input", None)]
ODD_VALUES = [
    *(-1, 0, 2, 21, 33, 101, 1.5, -0.5, 1e308, 2**63, -(2**70), "", " ", "a/b", "01", "minimal"),
    *([], {}, None, [1], [[]], [{}], [None], [True], [""], [" "], [2**40], {"x": 1}, {"01": 1}, {"5": 101}, {"a": 1}),
]


@pytest.mark.parametrize("name", DIALECTS)
def test_its_schemas_take_what_the_handlers_take(name: str) -> None:
    """Field by field, values of every kind: never stricter than the parser, and laxer only in what lies deeper."""
    dialect = DIALECTS[name]
    body = DOCUMENT["paths"][dialect.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    stricter: list[Any] = []
    laxer: list[Any] = []
    for field, schema in body["properties"].items():
        validator = Draft202012Validator(schema)
        for value in (*VALUES, *ODD_VALUES):
            is_described = validator.is_valid(value)
            is_taken = _is_taken(dialect, field, value)
            stricter += [(field, value)] if is_taken and not is_described else []
            is_deeper = field in DEEPER or (field, value) in EMPTY
            laxer += [(field, value)] if is_described and not is_taken and not is_deeper else []
    assert (stricter, laxer) == ([], [])


def _is_taken(dialect: Spoken, field: str, value: object) -> bool:
    try:
        dialect.parse({**dialect.least, field: value})
    except RequestError:
        return False
    return True


async def test_it_is_served(runtime_dir: Path) -> None:
    """The document of the application that runs."""
    async with serving(runtime_dir) as served:
        assert await served.get("/openapi.json") == (200, json.loads(json.dumps(DOCUMENT)))
