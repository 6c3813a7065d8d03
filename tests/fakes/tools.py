"""The tools of the parser tests: every JSON type, a tool without arguments, one with much text."""

from frontend.dialects.base import Tool

WEATHER = Tool(
    name="weather",
    description="The weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
        "required": ["city"],
    },
)
NOW = Tool(name="now", description="The time.")
WRITE = Tool(
    name="write_file",
    parameters={"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
)
SEARCH = Tool(
    name="search",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "filters": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": ["integer", "null"]},
            "score": {"type": "number"},
            "exact": {"type": "boolean"},
            "anything": {},
        },
    },
)
TOOLS = {tool.name: tool for tool in (WEATHER, NOW, WRITE, SEARCH)}
