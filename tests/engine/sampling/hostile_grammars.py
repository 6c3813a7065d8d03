"""Grammars that nobody means well with: huge, deep, endless, empty, ambiguous, or not grammars at all."""

import json
import random
from collections.abc import Iterator
from typing import Any

from engine.sampling.grammar_text import MAX_TEXT_BYTES
from protocol.messages import Grammar, GrammarKind

REGEXES = [
    "a{1000000}",
    "a{20000}",
    "(ab|c){100000}",
    "[bc]a{1000000}",
    "(a{1000}){1000}",
    "(((a{100}){100}){100}){100}",
    "a{4294967295}",
    "a{99999999999}",
    r"\w{100000}x{50000}",
    ".*a.{1000}",
    ".*a.*b.*c.*d.*e.*f.*g.*h",
    "(a?){1000}a{1000}",
    "((a+)+)+b",
    "",
    "()",
    "|",
    "(?=x)",
    r"\1",
    r"\p{L}{1,5000}",
    "[\U0001f600-\U0001f64f]{100}",
    "é{2000}",
    "\x00",
    r"[^\x00-\x7f]{1,1000}z",
    "(?i)straße{3,}",
    "[a-z]{0,200}[a-z]{0,200}[a-z]{0,200}x",
    "(.{0,50}a){20}",
    "a" * MAX_TEXT_BYTES,
    "a?" * 5_000,
    "(a|b)" * 5_000,
    "(" * 3_000 + "a" + ")" * 3_000,
    "[ab]" + "c" * 200_000,
    "(a{0,300}){0,300}",
    "(.{100}b){100}",
]
LARKS = [
    "",
    "start:",
    "start: start",
    'start: start start | "a"',
    "start: a\na: b\nb: a",
    'start: ""',
    "start: (start)*",
    'start: a*\na: "" | "x"',
    'start: "a"{1000000}',
    'start: ("a" | "b"){100000}',
    'start: a{1,1000000}\na: "x" | "xx"',
    "start: " + "(" * 5_000 + '"a"' + ")" * 5_000,
    "start: " + '"a" ' * 60_000,
    "start: " + " | ".join(f'"a{index}"' for index in range(20_000)),
    'start: a a a a a a a a\na: ("x"?)*',
    'start: "x" start "x" | "x"',
    'start: e\ne: e "+" e | "1"',
    "start: %json " + "{" * 1_000,
    "start: <[1000000]>",
    "start: <[*]>",
    "start: @foo",
    "start[max_tokens=0]: /.*/",
    'start[lazy]: /.*/ "b"',
    'start[stop="x"]: /.*/',
    "start: /[/",
    "\x00",
    r'start: "\ud800"',
    '%ignore /.*/\nstart: "a"',
    "start: A\nA: B\nB: A",
    "start: " + "a " * 100_000,
    "import x",
    'start: (A | B)* A (A|B)~60\nA: "a"\nB: "b"',
]
GBNFS = [
    "",
    "root ::=",
    "root ::= root",
    'root ::= root root | "a"',
    'root ::= "a"{1000000}',
    "root ::= [a-z]{1,1000000}",
    "root ::= " + "(" * 3_000 + '"a"' + ")" * 3_000,
    "root ::= " + '"a" ' * 20_000,
    r'root ::= "\x00"',
    'root ::= "a"* "a"* "a"* "a"* "b"',
    'root ::= ("a"? "a"?){1000}',
    'root ::= "é"{5000}',
    "root ::= foo",
    "root ::= [",
    "#" * MAX_TEXT_BYTES,
    "root ::= " + "|".join(f'"{index}"' for index in range(20_000)),
    'root ::= ("")* "a"',
    'root ::= x*\nx ::= y*\ny ::= "a"*',
]
CHOICES: list[Any] = [[], [""], ["a", "a"], ["a" * index for index in range(700)], ["x" * 250_000], [1], {}, ["\x00"]]
SCHEMAS: list[Any] = [
    {},
    True,
    False,
    {"enum": []},
    {"const": "x" * 100_000},
    {"enum": [f"v{index}" for index in range(20_000)]},
    {"enum": ["a" * index for index in range(700)]},
    {"type": "string", "minLength": 100_000},
    {"type": "string", "minLength": 10**7},
    {"type": "string", "pattern": "a{1000000}"},
    {"type": "string", "pattern": "^(a|b)*a(a|b){30}$"},
    {"type": "array", "minItems": 1_000_000},
    {"type": "array", "minItems": 1_000_000, "items": {"const": 1}},
    {"type": "array", "maxItems": 100_000, "items": {"type": "integer"}},
    {"type": "integer", "minimum": 0, "maximum": 10**300},
    {"type": "number", "multipleOf": 1e-9},
    {"anyOf": [{"const": f"x{index}"} for index in range(3_000)]},
    {"allOf": [{"type": "object", "properties": {f"k{index}": {"type": "string"}}} for index in range(200)]},
    {"type": "object", "properties": {f"p{index}": {"type": "integer"} for index in range(2_000)}},
    {"$ref": "#"},
    {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"},
    {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
    {"type": "object", "patternProperties": {".*x.{100}": {}}},
    {"type": "string", "format": "nonsense"},
    {"type": "object", "minProperties": 5_000},
    {"not": {}},
    {"anyOf": [{}] * 5_000},
    7,
    None,
    [],
]
SCHEMA_TEXTS = ["", "nul", "{" * 200_000, "[" * 100_000 + "]" * 100_000]


def chain(links: int, kind: GrammarKind) -> str:
    """Rules of which each is the next one: followed by recursion, it is as deep as it is long."""
    if kind == "json_schema":
        schemas = {f"r{index}": {"$ref": f"#/$defs/r{index + 1}"} for index in range(links)}
        return json.dumps({"$ref": "#/$defs/r0", "$defs": {**schemas, f"r{links}": {"type": "null"}}})
    sign, root = ("::=", "root") if kind == "gbnf" else (":", "start")
    rules = [f"{root} {sign} r0", *(f"r{index} {sign} r{index + 1}" for index in range(links))]
    return "\n".join([*rules, f'r{links} {sign} "x"'])


def hostile_grammars() -> Iterator[Grammar]:
    """All of them, and forty random regular expressions."""
    texts: list[tuple[GrammarKind, str]] = [
        *(("regex", text) for text in REGEXES),
        *(("lark", text) for text in LARKS),
        *(("gbnf", text) for text in GBNFS),
        *(("choice", json.dumps(choices)) for choices in CHOICES),
        *(("json_schema", json.dumps(schema)) for schema in SCHEMAS),
        *(("json_schema", text) for text in SCHEMA_TEXTS),
        ("lark", chain(8_000, "lark")),
        ("gbnf", chain(8_000, "gbnf")),
        ("json_schema", chain(5_000, "json_schema")),
    ]
    pieces = ["a", "b", "(", ")", "*", "+", "?", "{2,500}", "|", "[a-c]", ".", r"\d", r"\p{L}", "^", "$", "{1000}"]
    for seed in range(40):
        drawn = random.Random(seed)
        texts.append(("regex", "".join(drawn.choice(pieces) for _ in range(drawn.randint(5, 60)))))
    return (Grammar(kind=kind, text=text) for kind, text in texts)
