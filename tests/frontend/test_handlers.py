"""The generation routes over a FakeEngine: replies, errors, cancellations."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from frontend import request_body
from protocol.messages import Grammar
from tests.fakes.deadline import until
from tests.fakes.fake_engine import UNCOMPILABLE
from tests.fakes.serving import decoded_events, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


async def test_chat_stream_in_order(runtime_dir: Path) -> None:
    """Role, content, one finish reason, usage with no choices, [DONE]; and one Submit, no Cancel."""
    async with serving(runtime_dir) as served:
        events = await served.events(CHAT, chat("!echo fox abc", stream_options={"include_usage": True}))
        assert events[-1] == "[DONE]"
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert events[-2]["choices"] == []
        # With the end's; how many tokens a frame tells depends on how busy the machine is.
        expected = len(served.engine.tokenizer.encode("fox abc").ids) + 1
        assert events[-2]["usage"]["completion_tokens"] == expected
        choices = [event["choices"][0] for event in events[:-2]]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == "fox abc"
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
        assert len(served.engine.submits()) == 1
        assert served.engine.cancels() == []


async def test_whole_reply_equals_stream(runtime_dir: Path) -> None:
    """The text that is not streamed is the joined deltas of the streamed one, emoji and all."""
    async with serving(runtime_dir) as served:
        status, whole = await served.answer(CHAT, chat("words please"))
        events = await served.events(CHAT, chat("words please"))
        streamed = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
        assert (status, whole["choices"][0]["message"]["content"]) == (200, streamed)
        assert whole["usage"]["completion_tokens"] > 8


@pytest.mark.parametrize("path", [CHAT, "/chat/completions", COMPLETIONS, "/completions"])
async def test_routes_with_and_without_v1(runtime_dir: Path, path: str) -> None:
    """Each route answers under both of its paths."""
    async with serving(runtime_dir) as served:
        body = chat("!echo x") if "chat" in path else {"prompt": "!echo x"}
        assert (await served.answer(path, body))[0] == 200


async def test_completions_of_several_prompts(runtime_dir: Path) -> None:
    """Each prompt is a choice under its index; usage is summed."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(COMPLETIONS, {"prompt": ["!echo one", "!echo two", "!echo three"]})
        assert status == 200
        assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [
            (0, "one"),
            (1, "two"),
            (2, "three"),
        ]
        prompts = [len(submit.prompt.ids) // 4 for submit in served.engine.submits()]
        assert reply["usage"]["prompt_tokens"] == sum(prompts)


BAD_BODIES: list[tuple[str, bytes | dict[str, Any], int, str]] = [
    (CHAT, b"{", 400, "invalid_request"),
    (CHAT, b"", 400, "invalid_request"),
    (CHAT, b"\xff\xfe{}", 400, "invalid_request"),
    (CHAT, b"[" * 100_000, 413, "body_too_large"),
    (CHAT, b"[]", 400, "invalid_request"),
    (CHAT, {}, 400, "invalid_request"),
    (CHAT, {"messages": []}, 400, "invalid_request"),
    (CHAT, {"messages": "hello"}, 400, "invalid_request"),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, 400, "invalid_request"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "unsupported"),
    (CHAT, chat("x", max_tokens="7"), 400, "invalid_request"),
    (CHAT, chat("x", max_tokens=0), 400, "invalid_request"),
    (CHAT, chat("x", n=9), 400, "invalid_request"),
    (COMPLETIONS, {"prompt": ["x"] * 300, "n": 4}, 400, "invalid_request"),
    (CHAT, chat("x", top_p=1.5), 400, "invalid_request"),
    (CHAT, chat("x", logit_bias={"999999": 1}), 400, "invalid_request"),
    (CHAT, chat("x", allowed_token_ids=[5, 999_999]), 400, "invalid_request"),
    (CHAT, chat("x", bad_words=["a b " * 100]), 400, "invalid_request"),
    (CHAT, chat("x", stop_token_ids=[999_999]), 400, "invalid_request"),
    (CHAT, chat("x", response_format={"type": "yaml"}), 400, "invalid_request"),
    (CHAT, chat("x", guided_regex="a", guided_choice=["b"]), 400, "invalid_request"),
    (CHAT, chat("x", model="nobody"), 404, "model_not_found"),
    (CHAT, chat("word " * 3_000), 400, "context_length_exceeded"),
    (COMPLETIONS, {}, 400, "invalid_request"),
    (COMPLETIONS, {"prompt": ""}, 400, "invalid_request"),
    (COMPLETIONS, {"prompt": [1, 999_999]}, 400, "invalid_request"),
    (COMPLETIONS, {"prompt": "x", "model": 7}, 400, "invalid_request"),
]


async def test_bad_input(runtime_dir: Path) -> None:
    """Each bad body gets OpenAI's envelope with its status and code, and no Submit leaves."""
    async with serving(runtime_dir) as served:
        found: list[tuple[str, str | bytes, int, str]] = []
        for path, body, _, _ in BAD_BODIES:
            status, reply = await served.answer(path, body)
            assert set(reply) == {"error"}
            assert set(reply["error"]) == {"message", "type", "param", "code"}
            found.append((path, str(body)[:80], status, reply["error"]["code"]))
        assert found == [(path, str(body)[:80], status, code) for path, body, status, code in BAD_BODIES]
        assert served.engine.submits() == []


async def test_context_error_names_both_numbers(runtime_dir: Path) -> None:
    """The prompt's length and the context's are in the message."""
    async with serving(runtime_dir, context_length=50) as served:
        _, reply = await served.answer(COMPLETIONS, {"prompt": [5] * 60})
        assert "50 tokens" in reply["error"]["message"]
        assert "60" in reply["error"]["message"]


async def test_body_over_the_limit(runtime_dir: Path) -> None:
    """A body that is too large is 413 and names the limit."""
    async with serving(runtime_dir, {"max_body_bytes": 2_000}) as served:
        status, reply = await served.answer(CHAT, chat("x" * 3_000))
        assert (status, reply["error"]["code"]) == (413, "body_too_large")
        assert "2000" in reply["error"]["message"]


async def test_max_tokens_absent_runs_to_the_context(runtime_dir: Path) -> None:
    """Without max_tokens the row goes on to the context's end; a larger one is clamped to it."""
    async with serving(runtime_dir, context_length=300, step_ms=0) as served:
        for fields in ({}, {"max_tokens": 10_000}):
            _, reply = await served.answer(COMPLETIONS, {"prompt": "!count", **fields})
            assert reply["choices"][0]["finish_reason"] == "length"
            assert reply["usage"]["total_tokens"] == 300
        assert served.engine.submits()[0].max_tokens is None


async def test_stop_string_cancels_the_row_once(runtime_dir: Path) -> None:
    """The text ends before the stop, the engine hears one Cancel(stop), usage counts up to the stop."""
    async with serving(runtime_dir, context_length=1_000_000) as served:
        _, reply = await served.answer(COMPLETIONS, {"prompt": "!count", "stop": " 12"})
        assert reply["choices"][0]["text"] == " 0 1 2 3 4 5 6 7 8 9 10 11"
        assert reply["choices"][0]["finish_reason"] == "stop"
        expected = len(served.engine.tokenizer.encode(" 0 1 2 3 4 5 6 7 8 9 10 11 12").ids)
        assert reply["usage"]["completion_tokens"] == expected
        await until(lambda: not served.engine.rows.live(), "the row leaves the engine")
        assert [cancel.reason for cancel in served.engine.cancels()] == ["stop"]


async def test_stop_in_the_last_tokens_needs_no_cancel(runtime_dir: Path) -> None:
    """A row that the engine has ended already gets no Cancel for a stop found in its last text."""
    async with serving(runtime_dir) as served:
        _, reply = await served.answer(COMPLETIONS, {"prompt": "!burst one two three", "stop": "two", "max_tokens": 9})
        assert (reply["choices"][0]["text"], reply["choices"][0]["finish_reason"]) == ("one ", "stop")


@pytest.mark.parametrize("is_stream", [True, False])
async def test_client_gone_is_one_cancel(runtime_dir: Path, is_stream: bool) -> None:
    """A client that leaves, streamed or not, costs exactly one Cancel(gone); a sibling does not notice."""
    async with serving(runtime_dir) as served:
        sibling = asyncio.create_task(served.answer(COMPLETIONS, {"prompt": "!silent", "max_tokens": 100}))
        leaver = asyncio.create_task(served.post(CHAT, chat("!count", stream=is_stream)))
        await until(lambda: served.engine.rows.counts().decoding == 2, "both decode")
        if is_stream:
            (await leaver).close()
        else:
            leaver.cancel()
        await until(lambda: len(served.engine.cancels()) == 1, "the Cancel arrives")
        served.wake()
        status, reply = await sibling
        assert (status, reply["usage"]["completion_tokens"]) == (200, 100)
        assert [cancel.reason for cancel in served.engine.cancels()] == ["gone"]


async def test_client_gone_while_queued(runtime_dir: Path) -> None:
    """A request that waits for a row is cancelled, too."""
    async with serving(runtime_dir, max_rows=1) as served:
        running = asyncio.create_task(served.post(CHAT, chat("!silent")))
        await until(lambda: served.engine.rows.counts().decoding == 1, "one decodes")
        queued = asyncio.create_task(served.post(CHAT, chat("!silent")))
        await until(lambda: served.engine.rows.counts().waiting == 1, "one waits")
        queued.cancel()
        await until(lambda: served.engine.rows.counts().waiting == 0, "the queued one is gone")
        assert served.engine.rows.counts().decoding == 1
        running.cancel()
        await until(lambda: len(served.engine.cancels()) == 2, "both were cancelled")


async def test_every_prompt_of_a_left_request_is_cancelled(runtime_dir: Path) -> None:
    """Two choices that run are two Cancels; one that has ended needs none."""
    async with serving(runtime_dir) as served:
        leaver = asyncio.create_task(served.post(COMPLETIONS, {"prompt": ["!silent", "!echo x", "!silent"]}))
        await until(lambda: served.engine.rows.tally.finished == 1, "one choice ends")
        await until(lambda: served.engine.rows.counts().decoding == 2, "two run")
        await until(lambda: served.parts.client.row_count == 2, "the frontend has heard of it")
        leaver.cancel()
        await until(lambda: not served.engine.rows.live(), "the rows are gone")
        assert sorted(cancel.id[-2:] for cancel in served.engine.cancels()) == ["/0", "/2"]


async def test_failure_before_the_first_byte_is_a_status(runtime_dir: Path) -> None:
    """A row that fails at once is a 500, also for a request that wanted a stream."""
    async with serving(runtime_dir) as served:
        for is_stream in (True, False):
            status, reply = await served.answer(CHAT, chat("!fail 0", stream=is_stream))
            assert (status, reply["error"]["code"]) == (500, "decode_failed")
            assert "scripted failure" in reply["error"]["message"]


async def test_failure_after_the_200_is_a_frame(runtime_dir: Path) -> None:
    """Content, then one error frame, then the end: no finish reason, no [DONE]."""
    async with serving(runtime_dir) as served:
        events = await served.events(CHAT, chat("!fail 2"))
        choices = [event["choices"][0] for event in events[:-1]]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == " fox fox"
        assert {choice["finish_reason"] for choice in choices} == {None}
        assert events[-1]["error"]["code"] == "decode_failed"


async def test_failed_choice_ends_its_siblings(runtime_dir: Path) -> None:
    """One choice's failure is the request's; the others are cancelled."""
    async with serving(runtime_dir) as served:
        status, _ = await served.answer(COMPLETIONS, {"prompt": ["!silent", "!fail 3"]})
        assert status == 500
        await until(lambda: not served.engine.rows.live(), "the sibling is gone")
        assert [cancel.id[-2:] for cancel in served.engine.cancels()] == ["/0"]


async def test_deadline(runtime_dir: Path) -> None:
    """A passed timeout is 408 before the first byte, and an error frame after it."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(CHAT, chat("!silent", timeout=0.1))
        assert (status, reply["error"]["code"]) == (408, "deadline_exceeded")
        async with await served.post(CHAT, chat("!count", stream=True, timeout=600)) as response:
            head = await response.content.readuntil(b"\n\n")
            served.expire()
            events = decoded_events(head + await response.read())
        assert events[-1]["error"]["code"] == "deadline_exceeded"


async def test_queue_full_is_429(runtime_dir: Path) -> None:
    """The engine's refusal keeps its code, with Retry-After."""
    async with serving(runtime_dir, max_rows=1, max_waiting=1) as served:
        waiting = [asyncio.create_task(served.post(CHAT, chat("!silent")))]
        await until(lambda: served.engine.rows.counts().decoding == 1, "one decodes")
        waiting.append(asyncio.create_task(served.post(CHAT, chat("!silent"))))
        await until(lambda: served.engine.rows.counts().waiting == 1, "the queue is full")
        async with await served.post(CHAT, chat("x")) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (429, "queue_full")
            assert int(response.headers["retry-after"]) >= 1
        for task in waiting:
            task.cancel()


async def test_lost_engine_ends_streams(runtime_dir: Path) -> None:
    """Rows of an engine that is replaced end with an error: a status before, a frame after the first byte."""
    async with serving(runtime_dir) as served:
        silent = asyncio.create_task(served.answer(CHAT, chat("!silent")))
        stream = asyncio.create_task(served.events(CHAT, chat("!count")))
        await until(lambda: served.engine.rows.counts().decoding == 2, "both decode")
        await until(lambda: served.engine.rows.tally.generated_tokens > 2, "tokens flow")
        served.engine.stop()
        status, reply = await silent
        assert (status, reply["error"]["code"]) == (503, "shutting_down")
        events = await stream
        assert "error" in events[-1]


async def test_not_ready_says_the_phase(runtime_dir: Path) -> None:
    """While the engine loads, a request waits a while and is then refused with Retry-After and the phase."""
    async with serving(runtime_dir, {"engine_wait_s": 0.3}, wait=False, load_s=60) as served:
        await until(lambda: served.parts.client.state.phase == "loading", "loading is seen")
        async with await served.post(CHAT, chat("x")) as response:
            reply = await response.json()
            assert (response.status, reply["error"]["code"]) == (503, "not_ready")
            assert "loading" in reply["error"]["message"]
            assert int(response.headers["retry-after"]) >= 1


async def test_request_waits_for_the_engine(runtime_dir: Path) -> None:
    """A request that comes while the engine loads is served when it is ready."""
    async with serving(runtime_dir, wait=False, load_s=0.3) as served:
        assert (await served.answer(CHAT, chat("!echo x")))[0] == 200


async def test_unknown_fields_are_named(runtime_dir: Path) -> None:
    """Fields that nobody knows are in the header, streamed or not, and harmless."""
    async with serving(runtime_dir) as served:
        for is_stream in (True, False):
            body = chat("!echo x", stream=is_stream, zebra=1, apple=[2])
            async with await served.post(CHAT, body) as response:
                assert response.status == 200
                assert response.headers["x-convoy-ignored"] == "zebra, apple"
                await response.read()


async def test_hostile_field_name_cannot_split_the_header(runtime_dir: Path) -> None:
    """A field name with line ends or other letters reaches the header harmlessly."""
    async with serving(runtime_dir) as served:
        response = await served.post(CHAT, chat("!echo x", **{"a\r\nset-cookie: b": 1, "ü,": 2}))
        assert response.status == 200
        assert response.headers["x-convoy-ignored"] == "a??set-cookie: b, \\xfc?"
        assert "set-cookie" not in response.headers


async def test_a_body_that_is_not_what_its_encoding_says(runtime_dir: Path) -> None:
    """Bytes that do not decompress are the client's mistake, not an internal error."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(CHAT, b"not gzip", headers={"content-encoding": "gzip"})
        assert (status, reply["error"]["code"]) == (400, "invalid_request")
        assert reply["error"]["message"].endswith("cannot be read: Can not decode content-encoding: gzip")


async def test_large_bodies_are_parsed_beside_the_event_loop(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of millions of token ids must not hold up other streams, probes and pings for seconds."""
    threads: list[bool] = []
    original = request_body.decoded

    def recording(body: bytes) -> object:
        threads.append(threading.current_thread() is threading.main_thread())
        return original(body)

    monkeypatch.setattr(request_body, "decoded", recording)
    async with serving(runtime_dir) as served:
        assert (await served.answer(COMPLETIONS, {"prompt": "!echo x"}))[0] == 200
        assert (await served.answer(COMPLETIONS, {"prompt": [5] * 100_000}))[0] == 400
        assert threads == [True, False]


async def test_request_id_is_echoed_when_sane(runtime_dir: Path) -> None:
    """A plain id comes back on whole replies, streams and errors; anything else is replaced."""
    async with serving(runtime_dir) as served:
        for body in (chat("!echo x"), chat("!echo x", stream=True), chat("x", model="nobody")):
            async with await served.post(CHAT, body, headers={"x-request-id": "abc-1"}) as response:
                assert response.headers["x-request-id"] == "abc-1"
                await response.read()
        async with await served.post(CHAT, chat("!echo x"), headers={"x-request-id": "a b" * 99}) as response:
            assert response.headers["x-request-id"].startswith("req-")
            await response.read()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_refused_grammar_is_told_under_the_clients_field(runtime_dir: Path, is_stream: bool) -> None:
    """D7: the engine's words on a grammar reach the client as a 400 under the name that it has sent."""
    async with serving(runtime_dir) as served:
        body = chat("x", guided_regex=UNCOMPILABLE, stream=is_stream)
        status, reply = await served.answer(CHAT, body)
        error = reply["error"]
        assert (status, error["code"], error["param"]) == (400, "invalid_request", "guided_regex")
        assert error["message"] == "`guided_regex`: the grammar does not compile: uncompilable at 1(8)"
        assert served.engine.submits()[0].grammar == Grammar(kind="regex", text=UNCOMPILABLE)
