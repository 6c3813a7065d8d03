"""Items as they are stored: references are found, and every item is listed whole."""

import pytest

from frontend.dialects.openai_responses_stored import item_type, named_items, referenced_ids, resolved
from frontend.errors import RequestError
from tests.frontend.dialects.response_items import CALL, SAID, USER


def test_references() -> None:
    """OpenAI lets their type be left out; one that is not stored is a 404 that names it."""
    items = [USER, {"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}]
    assert [item_type(item) for item in items] == ["message", "item_reference", "item_reference"]
    assert referenced_ids(items) == ["msg_1", "msg_2"]
    assert resolved(items, {"msg_1": SAID, "msg_2": CALL}) == [USER, SAID, CALL]
    with pytest.raises(RequestError) as caught:
        resolved(items, {"msg_1": SAID})
    assert (caught.value.status, caught.value.param) == (404, "input[2]")
    assert "msg_2" in caught.value.message


def test_items_as_they_are_listed() -> None:
    """Each has a type, a status and an id, its own if it came with one, and text in parts."""
    named = named_items([{"role": "user", "content": "x"}, {**SAID, "content": "y"}, {**CALL, "id": "fc_7"}], "resp_ab")
    assert named == [
        {
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_text", "text": "x"}],
            "id": "msg_ab_in0",
        },
        {
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "y", "annotations": []}],
            "id": "msg_ab_in1",
        },
        {"status": "completed", **CALL, "id": "fc_7"},
    ]
