"""The Responses routes over a FakeEngine: replies, errors, what is stored and what can be gone on from."""

import asyncio
import json
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from protocol.codec import unpack_ids
from tests.fakes.deadline import until
from tests.fakes.fake_engine import UNCOMPILABLE
from tests.fakes.serving import Served, named_events, serving

RESPONSES = "/v1/responses"


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"input": text, **fields}


async def made(served: Served, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    """A whole reply."""
    found, reply = await served.answer(RESPONSES, body)
    assert found == status, reply
    return reply


async def streamed(served: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of a stream."""
    async with await served.post(RESPONSES, {**body, "stream": True}) as response:
        assert response.status == 200, await response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        return named_events(await response.read())


async def deleted(served: Served, id_: str) -> tuple[int, Any]:
    async with served.session.delete(f"{served.url}{RESPONSES}/{id_}") as response:
        return response.status, json.loads(await response.read())


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def prompt_of(served: Served, index: int = -1) -> str:
    """What the engine was sent."""
    ids = unpack_ids(served.engine.submits()[index].prompt.ids)
    return served.engine.tokenizer.decode(ids, skip_special_tokens=False)


async def test_whole_and_streamed_agree(runtime_dir: Path) -> None:
    """The same text, the same usage, and a stream without `[DONE]`."""
    async with serving(runtime_dir) as served:
        whole = await made(served, asked("words please"))
        events = await streamed(served, asked("words please"))
        last = events[-1]["response"]
        assert events[-1]["type"] == "response.completed"
        assert (text_of(last), last["usage"]) == (text_of(whole), whole["usage"])
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == text_of(whole)
        usage = whole["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert usage["output_tokens"] == len(deltas) + 1 or usage["output_tokens"] > len(deltas)


async def test_both_paths(runtime_dir: Path) -> None:
    """With and without /v1."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer("/responses", asked("!echo x"))
        assert status == 200
        assert (await served.get(f"/responses/{reply['id']}"))[1] == reply


async def test_max_output_tokens(runtime_dir: Path) -> None:
    """Exactly that many, `incomplete`, streamed or not."""
    async with serving(runtime_dir) as served:
        whole = await made(served, asked("!count", max_output_tokens=5))
        assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert whole["usage"]["output_tokens"] == 5
        assert (await streamed(served, asked("!count", max_output_tokens=5)))[-1]["type"] == "response.incomplete"


async def test_a_stop_string_completes(runtime_dir: Path) -> None:
    """It is no part of the text, and the row leaves."""
    async with serving(runtime_dir) as served:
        whole = await made(served, asked("!count", stop=" 3"))
        assert (whole["status"], text_of(whole)) == ("completed", " 0 1 2")
        await until(lambda: not served.engine.rows.live(), "the row leaves the engine")


async def test_failures_have_a_status_or_an_event(runtime_dir: Path) -> None:
    """Before the first token a status; after it `error` and `response.failed`, and the connection closes."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(RESPONSES, asked("!fail 0", stream=True))
        assert (status, reply["error"]["code"]) == (500, "decode_failed")
        assert (await served.answer(RESPONSES, asked("!silent", timeout=0.1)))[0] == 408
        events = await streamed(served, asked("!fail 2"))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_a_failed_response_is_stored_as_far_as_it_came(runtime_dir: Path) -> None:
    """With its text; nobody can go on from it, and the error says what to do."""
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo a"))
        for previous in (None, first["id"]):
            failed = (await streamed(served, asked("!fail 2", previous_response_id=previous)))[-1]["response"]
            assert (failed["status"], failed["output"][0]["status"], text_of(failed)) == (
                "failed",
                "incomplete",
                " fox fox",
            )
            assert await served.get(f"{RESPONSES}/{failed['id']}") == (200, failed)
            refused = (await made(served, asked("x", previous_response_id=failed["id"]), 400))["error"]
            assert refused["param"] == "previous_response_id"
            assert (previous or "without `previous_response_id`") in refused["message"]
        hidden = (await streamed(served, asked("!fail 2", store=False)))[-1]["response"]
        assert (hidden["store"], (await served.get(f"{RESPONSES}/{hidden['id']}"))[0]) == (False, 404)


async def test_a_failed_response_that_cannot_be_stored_says_so(runtime_dir: Path) -> None:
    """Its client hears of the failure all the same."""
    async with serving(runtime_dir, {"response_store_bytes": 1_000}) as served:
        events = await streamed(served, asked("!fail 200"))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert (events[0]["response"]["store"], events[-1]["response"]["store"]) == (True, False)


async def test_a_client_that_leaves_is_cancelled(runtime_dir: Path) -> None:
    """One Cancel, and nothing is stored."""
    async with serving(runtime_dir) as served:
        response = await served.post(RESPONSES, asked("!count", stream=True))
        head = await response.content.readuntil(b"response.in_progress")
        id_ = json.loads(head.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        response.close()
        await until(lambda: not served.engine.rows.live(), "the row leaves the engine")
        assert [message.reason for message in served.engine.cancels()] == ["gone"]
        assert (await served.get(f"{RESPONSES}/{id_}"))[0] == 404


async def test_errors_name_this_apis_fields(runtime_dir: Path) -> None:
    """The prompt's is `input`, a grammar's is `text.format`."""
    async with serving(runtime_dir) as served:
        long = await made(served, asked("word " * 3_000), 400)
        assert (long["error"]["code"], long["error"]["param"]) == ("context_length_exceeded", "input")
        schema = {"title": UNCOMPILABLE}
        form = {"type": "json_schema", "name": "n", "schema": schema}
        bad = await made(served, {"input": "x", "text": {"format": form}}, 400)
        assert (bad["error"]["param"], bad["error"]["message"].partition(":")[0]) == ("text.format", "`text.format`")
        unknown = await made(served, {"input": "x", "model": "nobody"}, 404)
        assert unknown["error"]["code"] == "model_not_found"


async def test_ignored_fields_are_named(runtime_dir: Path) -> None:
    """In the header, like those of the other dialects."""
    async with serving(runtime_dir) as served:
        body = asked("!echo x", truncation="auto", tools=[{"type": "web_search"}])
        async with await served.post(RESPONSES, body) as response:
            assert response.headers["x-convoy-ignored"] == "truncation, tools[].type=web_search"


async def test_a_response_is_found_and_deleted(runtime_dir: Path) -> None:
    """As it was told, streamed or not; then it is gone."""
    async with serving(runtime_dir) as served:
        for response in (
            await made(served, asked("!echo one", metadata={"k": "v"})),
            (await streamed(served, asked("!echo two")))[-1]["response"],
        ):
            path = f"{RESPONSES}/{response['id']}"
            assert await served.get(path) == (200, response)
            assert await deleted(served, response["id"]) == (
                200,
                {"id": response["id"], "object": "response", "deleted": True},
            )
            assert (await served.get(path))[0] == (await deleted(served, response["id"]))[0] == 404


async def test_going_on_from_a_response(runtime_dir: Path) -> None:
    """The whole conversation is the prompt; the former instructions are not."""
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo Lorry.", instructions="Be kind."))
        second = await made(served, asked("!echo Bridge.", previous_response_id=first["id"], instructions="Be brief."))
        assert second["previous_response_id"] == first["id"]
        third = (await streamed(served, asked("!echo x", previous_response_id=second["id"])))[-1]["response"]
        prompt = prompt_of(served)
        assert [prompt.count(text) for text in ("!echo Lorry.", "\nLorry.", "!echo Bridge.", "\nBridge.")] == [1] * 4
        assert "Be kind." not in prompt + prompt_of(served, 1)
        assert "Be brief." in prompt_of(served, 1)
        _, listed = await served.get(f"{RESPONSES}/{third['id']}/input_items?order=asc")
        texts = [part["text"] for item in listed["data"] for part in item["content"]]
        assert texts == ["!echo Lorry.", "Lorry.", "!echo Bridge.", "Bridge.", "!echo x"]


async def test_another_frontend_goes_on(runtime_dir: Path) -> None:
    """One frontend stores, the other finds it as soon as the stream has ended."""
    async with serving(runtime_dir) as served, serving(runtime_dir, beside=served.engine) as other:
        first = (await streamed(served, asked("!echo Lorry.")))[-1]["response"]
        assert await other.get(f"{RESPONSES}/{first['id']}") == (200, first)
        second = await made(other, asked("!echo x", previous_response_id=first["id"]))
        assert "\nLorry." in prompt_of(served)
        assert (await deleted(served, second["id"]))[0] == 200
        assert (await other.get(f"{RESPONSES}/{second['id']}"))[0] == 404


async def test_items_are_named_by_reference(runtime_dir: Path) -> None:
    """Of the output or the input of a stored response."""
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo Lorry."))
        _, listed = await served.get(f"{RESPONSES}/{first['id']}/input_items")
        references = [
            {"type": "item_reference", "id": listed["data"][0]["id"]},
            {"id": first["output"][0]["id"]},
        ]
        await made(served, {"input": [*references, {"role": "user", "content": "!echo y"}]})
        assert [prompt_of(served).count(text) for text in ("!echo Lorry.", "\nLorry.")] == [1, 1]
        reply = await made(served, {"input": [{"type": "item_reference", "id": "msg_none"}]}, 404)
        assert "msg_none" in reply["error"]["message"]


async def test_store_false_writes_nothing(runtime_dir: Path) -> None:
    """Not the response, not even a file."""
    async with serving(runtime_dir) as served:
        response = await made(served, asked("!echo secret", store=False))
        assert response["store"] is False
        assert not (runtime_dir / "responses").exists()
        assert (await served.get(f"{RESPONSES}/{response['id']}"))[0] == 404
        reply = await made(served, asked("x", previous_response_id=response["id"]), 400)
        assert (reply["error"]["code"], reply["error"]["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )


async def test_a_broken_line_is_named(runtime_dir: Path) -> None:
    """The error says which response is gone."""
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo a"))
        second = await made(served, asked("!echo b", previous_response_id=first["id"]))
        await deleted(served, first["id"])
        reply = await made(served, asked("x", previous_response_id=second["id"]), 400)
        assert reply["error"]["code"] == "previous_response_not_found"
        assert first["id"] in reply["error"]["message"]
        assert (await served.get(f"{RESPONSES}/{second['id']}"))[0] == 200


async def test_nobody_else_reads_the_store(runtime_dir: Path) -> None:
    """Mode 0600, in a folder of mode 0700."""
    async with serving(runtime_dir) as served:
        await made(served, asked("!echo a"))
        paths = [runtime_dir / "responses", *(runtime_dir / "responses").iterdir()]
        assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths} == {0}


async def test_without_a_store(runtime_dir: Path) -> None:
    """--response-store-bytes 0: replies say that they are not stored, and going on is refused by name."""
    async with serving(runtime_dir, {"response_store_bytes": 0}) as served:
        assert (await made(served, asked("!echo a")))["store"] is False
        async with await served.post(RESPONSES, asked("!echo a", store=True)) as response:
            assert response.headers["x-convoy-ignored"] == "store"
            assert json.loads(await response.read())["store"] is False
        reply = await made(served, asked("x", previous_response_id="resp_1"), 400)
        assert (reply["error"]["code"], reply["error"]["param"]) == ("unsupported", "previous_response_id")
        assert "--response-store-bytes" in reply["error"]["message"]
        assert not (runtime_dir / "responses").exists()


async def test_a_response_too_large_for_the_store(runtime_dir: Path) -> None:
    """It reaches its client, and says that it is not stored, streamed or not."""
    async with serving(runtime_dir, {"response_store_bytes": 2_000}) as served:
        whole = await made(served, asked("!echo " + "word " * 100))
        events = await streamed(served, asked("!echo " + "word " * 100))
        assert (whole["status"], whole["store"]) == ("completed", False)
        assert (events[0]["response"]["store"], events[-1]["response"]["store"]) == (True, False)


async def test_a_locked_store_costs_the_store(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies go out, not stored; what is stored is still read; other routes do not notice."""
    monkeypatch.setattr("frontend.response_store._BUSY_S", 0.05)
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo a"))
        blocker = sqlite3.connect(runtime_dir / "responses" / "1.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        second = await made(served, asked("!echo b", previous_response_id=first["id"]))
        assert (text_of(second), second["store"]) == ("b", False)
        status, reply = await deleted(served, first["id"])
        assert (status, reply["error"]["code"]) == (503, "response_store_unavailable")
        blocker.close()
        assert (await made(served, asked("!echo b", previous_response_id=first["id"])))["store"] is True


async def test_a_corrupt_store_begins_anew(runtime_dir: Path) -> None:
    """What was stored is lost and said to be; new responses are stored."""
    async with serving(runtime_dir) as served:
        first = await made(served, asked("!echo a"))
    (runtime_dir / "responses" / "1.db").write_bytes(b"\xff" * 20_000)
    async with serving(runtime_dir) as served:
        assert (await made(served, asked("x", previous_response_id=first["id"]), 400))["error"]["code"] == (
            "previous_response_not_found"
        )
        second = await made(served, asked("!echo b"))
        assert (await served.get(f"{RESPONSES}/{second['id']}"))[1] == second
        assert (runtime_dir / "responses" / "1.corrupt").exists()


async def test_compacting_is_refused_with_what_to_do(runtime_dir: Path) -> None:
    """A 400 that says so, where an agent would take a 404 for a wrong address."""
    async with serving(runtime_dir) as served:
        for path in (f"{RESPONSES}/compact", "/responses/compact"):
            status, reply = await served.answer(path, {"model": "fake-model", "input": "x"})
            assert (status, reply["error"]["code"]) == (400, "unsupported")
            assert "summary" in reply["error"]["message"]
        assert (await served.get(f"{RESPONSES}/compact"))[0] == 404


async def test_pages_of_input_items(runtime_dir: Path) -> None:
    """Newest first unless asked otherwise; after an item; with a limit."""
    async with serving(runtime_dir) as served:
        items = [{"role": "user", "content": f"item {index}"} for index in range(5)]
        response = await made(served, {"input": items})
        path = f"{RESPONSES}/{response['id']}/input_items"

        async def page(query: str) -> tuple[list[str], bool]:
            status, listed = await served.get(path + query)
            assert (status, listed["object"]) == (200, "list")
            ids = [item["id"].rpartition("_in")[2] for item in listed["data"]]
            assert (listed["first_id"], listed["last_id"]) == (
                (listed["data"][0]["id"], listed["data"][-1]["id"]) if ids else (None, None)
            )
            return ids, listed["has_more"]

        hexadecimal = response["id"].removeprefix("resp_")
        assert await page("") == (["4", "3", "2", "1", "0"], False)
        assert await page("?order=asc&limit=2") == (["0", "1"], True)
        assert await page(f"?order=asc&limit=3&after=msg_{hexadecimal}_in1") == (["2", "3", "4"], False)
        assert await page(f"?after=msg_{hexadecimal}_in0") == ([], False)
        for query in ("?limit=0", "?limit=101", "?limit=x", "?limit=²", "?order=up", "?after=msg_none"):
            assert (await served.get(path + query))[0] == 400
        assert (await served.get(f"{RESPONSES}/resp_none/input_items"))[0] == 404


async def test_what_is_only_for_background_responses(runtime_dir: Path) -> None:
    """Nothing to cancel, nothing to stream later; both are told from an id that is unknown."""
    async with serving(runtime_dir) as served:
        response = await made(served, asked("!echo a"))
        path = f"{RESPONSES}/{response['id']}"
        status, reply = await served.answer(f"{path}/cancel", {})
        assert (status, reply["error"]["code"]) == (400, "invalid_request")
        assert (await served.answer(f"{RESPONSES}/resp_none/cancel", {}))[0] == 404
        assert (await served.get(f"{path}?stream=true"))[0] == 400
        assert (await served.get(f"{path}?stream=false"))[0] == 200


async def test_many_at_once_are_all_stored(runtime_dir: Path) -> None:
    """The one thread takes them in turn."""
    async with serving(runtime_dir) as served:
        replies = await asyncio.gather(*(made(served, asked(f"!echo number {index}")) for index in range(30)))
        assert {reply["store"] for reply in replies} == {True}
        found = await asyncio.gather(*(served.get(f"{RESPONSES}/{reply['id']}") for reply in replies))
        assert [reply for _, reply in found] == list(replies)


async def test_methods_are_named(runtime_dir: Path) -> None:
    """A path with several methods names them all."""
    async with serving(runtime_dir) as served:
        async with served.session.options(f"{served.url}{RESPONSES}/resp_1") as response:
            assert response.headers["allow"] == "GET, HEAD, DELETE, OPTIONS"
        assert (await served.get(RESPONSES))[0] == 405
