"""JSON schemas as people send them: our own suite in the public ones' style, each bounded in what it may write."""

from typing import Any

Schema = dict[str, Any]

WORD: Schema = {"type": "string", "maxLength": 8}
SMALL: Schema = {"type": "integer", "minimum": 0, "maximum": 99}


def record(properties: dict[str, Schema], **more: Any) -> Schema:
    """A closed object with every property required."""
    closed: Schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**closed, "additionalProperties": False, **more}


def array(items: Schema, most: int = 3, **more: Any) -> Schema:
    """At most that many items."""
    return {"type": "array", "items": items, "maxItems": most, **more}


def text(pattern: str) -> Schema:
    """A string of a pattern."""
    return {"type": "string", "pattern": pattern}


ADDRESS = record({"street": WORD, "zip": text("^[0-9]{5}$"), "country": {"enum": ["DE", "FR", "JP"]}})
POINT = record({"x": {"type": "number", "minimum": -1, "maximum": 1}, "y": {"type": "number", "minimum": 0}})
TREE: Schema = {
    "$defs": {
        "node": record({"value": SMALL, "children": array({"$ref": "#/$defs/node"}, 1)}),
    },
    "$ref": "#/$defs/node",
}
LINKED: Schema = {
    "$defs": {
        "link": record({"name": WORD, "next": {"anyOf": [{"$ref": "#/$defs/link"}, {"type": "null"}]}}),
    },
    "$ref": "#/$defs/link",
}
EXPRESSION: Schema = {
    "$defs": {
        "expression": {
            "anyOf": [
                SMALL,
                record(
                    {
                        "op": {"enum": ["+", "-"]},
                        "left": {"$ref": "#/$defs/expression"},
                        "right": {"$ref": "#/$defs/expression"},
                    }
                ),
            ]
        }
    },
    "$ref": "#/$defs/expression",
}

SCHEMAS: dict[str, Schema] = {
    # Plain values.
    "string": WORD,
    "least string": {"type": "string", "minLength": 3, "maxLength": 6},
    "integer": {"type": "integer", "minimum": -10, "maximum": 10},
    "exclusive integer": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1000},
    "multiple": {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5},
    "number": {"type": "number", "minimum": 0, "maximum": 1},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "constant": {"const": "fixed"},
    "constant object": {"const": {"a": [1, 2], "b": None}},
    "constant number": {"const": 3.5},
    "enum of words": {"enum": ["red", "green", "blue"]},
    "enum of kinds": {"enum": ["one", 2, None, True, {"three": 3}]},
    "nullable": {"type": ["string", "null"], "maxLength": 5},
    "several types": {"type": ["integer", "boolean"], "minimum": 0, "maximum": 9},
    # Patterns and formats.
    "digits": text("^[0-9]{3}-[0-9]{4}$"),
    "hex": text("^#[0-9a-f]{6}$"),
    "version": text(r"^v\d{1,2}\.\d{1,2}(\.\d{1,2})?$"),
    "plate": text("^[A-Z]{1,3} ?[0-9]{1,4}$"),
    "alternatives": text("^(yes|no|maybe)!{0,2}$"),
    "unanchored": {"type": "string", "pattern": "[xyz]{2}", "maxLength": 12},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date-time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "duration": {"type": "string", "format": "duration", "maxLength": 20},
    # Arrays.
    "words": array(WORD),
    "least items": array(SMALL, 4, minItems=2),
    "no items": array(WORD, 0),
    "matrix": array(array(SMALL, 2, minItems=2), 2, minItems=2),
    "tuple": {"type": "array", "prefixItems": [WORD, SMALL, {"type": "boolean"}], "items": False, "minItems": 3},
    "open tuple": {"type": "array", "prefixItems": [SMALL], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    "enums": array({"enum": ["a", "b", "c"]}, 5),
    "records": array(record({"id": SMALL, "done": {"type": "boolean"}}), 3),
    # Objects.
    "record": record({"name": WORD, "age": SMALL}),
    "empty": record({}),
    "optional": {
        "type": "object",
        "properties": {"a": SMALL, "b": WORD, "c": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "all optional": {
        "type": "object",
        "properties": {"a": SMALL, "b": {"type": "null"}},
        "additionalProperties": False,
    },
    "nested": record({"user": record({"name": WORD, "address": ADDRESS}), "active": {"type": "boolean"}}),
    "deep": record({"a": record({"b": record({"c": record({"d": record({"e": SMALL})})})})}),
    "wide": record({f"field_{index}": SMALL for index in range(12)}),
    "odd names": record({"": SMALL, "with space": SMALL, 'quote"': SMALL, "ünï": SMALL, "back\\slash": SMALL}),
    "map": {
        "type": "object",
        "patternProperties": {"^k[0-9]$": SMALL},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    },
    "open map": {"type": "object", "additionalProperties": SMALL, "maxProperties": 1},
    # Combinations.
    "any of values": {"anyOf": [WORD, SMALL, {"type": "null"}]},
    "any of records": {"anyOf": [record({"cat": WORD}), record({"dog": SMALL})]},
    "one of records": {"oneOf": [record({"kind": {"const": "a"}, "x": SMALL}), record({"kind": {"const": "b"}})]},
    "all of": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
    "all of objects": {
        "allOf": [
            {"type": "object", "properties": {"a": SMALL}, "required": ["a"]},
            {"type": "object", "properties": {"b": WORD}, "required": ["b"]},
        ],
        "properties": {"a": {}, "b": {}},
        "additionalProperties": False,
    },
    "any of inside": record({"value": {"anyOf": [SMALL, array(SMALL, 2), record({"v": SMALL})]}}),
    # References.
    "definitions": {"definitions": {"short": WORD}, **record({"a": {"$ref": "#/definitions/short"}, "b": SMALL})},
    "shared definition": {"$defs": {"p": POINT}} | record({"from": {"$ref": "#/$defs/p"}, "to": {"$ref": "#/$defs/p"}}),
    "reference to a property": record({"a": SMALL, "b": {"$ref": "#/properties/a"}}),
    "tree": TREE,
    "linked list": LINKED,
    "expression": EXPRESSION,
    # As agents send them.
    "weather call": record({"location": WORD, "unit": {"enum": ["celsius", "fahrenheit"]}, "days": SMALL}),
    "file edit": record({"path": text("^[a-z]{1,8}/[a-z]{1,8}\\.py$"), "line": SMALL, "insert": WORD}),
    "plan": record({"steps": array(record({"title": WORD, "status": {"enum": ["todo", "doing", "done"]}}), 3)}),
    "verdict": record({"reasoning": {"type": "string", "maxLength": 60}, "score": {"type": "number", "maximum": 10}}),
    "extraction": record(
        {"people": array(record({"name": WORD, "born": {"type": ["integer", "null"], "minimum": 1900}}), 2)}
    ),
    "command": record({"command": {"enum": ["ls", "cat", "grep"]}, "arguments": array(WORD, 2), "timeout_s": SMALL}),
    "invoice": record(
        {
            "number": text("^INV-[0-9]{4}$"),
            "date": {"type": "string", "format": "date"},
            "lines": array(record({"item": WORD, "price": {"type": "number", "minimum": 0, "maximum": 999}}), 2),
            "paid": {"type": "boolean"},
        }
    ),
    "with titles": {"title": "Point", "description": "A point.", "$schema": "http://json-schema.org/draft-07/schema#"}
    | record({"x": {"type": "integer", "title": "X", "minimum": 0, "maximum": 9, "default": 1, "examples": [2]}}),
}
