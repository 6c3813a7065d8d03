"""One choice's log-probabilities and echo: aligned with its text at every split, each token's entry once."""

import asyncio
from itertools import pairwise

import pytest

from frontend.choice import ChoiceTexts, LiveChoice
from frontend.dialects.base import (
    AskedLogprobs,
    ChoiceFinished,
    ChoiceStarted,
    ChoiceText,
    Generation,
    ReplyEvent,
    TextPrompt,
    TokenEntry,
)
from frontend.echo import prompt_echoes
from frontend.errors import RequestError
from frontend.model_text import ModelText, load_model_text
from frontend.parsers.base import CallBegun
from frontend.stream import PROMPT_ENTRIES_PER_TAKE, RowMailbox
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import (
    BosRule,
    Finish,
    FinishReason,
    LogprobsWanted,
    RowDelta,
    Submit,
    SubmitId,
    TokenLogprobs,
    TokenPrompt,
    Usage,
)
from tests.fakes.fake_logprobs import fake_logprobs, fake_prompt_logprobs
from tests.fakes.tokenizer_folder import build_tokenizer_folder

TEXT = "the 🦊 jumps over the lazy dog 漢"
PROMPT = "one 🦊 two"
WANTED = LogprobsWanted(top=3, of_prompt=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return load_model_text(build_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")), BosRule())


def make_choice(text: ModelText, **fields: object) -> LiveChoice:
    """A choice with log-probabilities; fields: of its Generation."""
    generation = Generation(
        **{"model": None, "prompts": (TextPrompt(PROMPT),), "logprobs": AskedLogprobs(3), **fields}  # type: ignore[arg-type]
    )
    ids = text.tokenizer.encode_text(PROMPT)
    submit = Submit(
        epoch="e",
        id=SubmitId("r/0"),
        group="r/0",
        model="m",
        prompt=TokenPrompt(ids=pack_ids(ids)),
        logprobs=None if generation.logprobs is None else WANTED,
    )
    echoes = prompt_echoes(generation, [ids], text)
    mailbox = RowMailbox(submit, asyncio.Event())
    return LiveChoice(mailbox, ChoiceTexts(text, generation), echoes[0] if echoes else None)


def heard(choice: LiveChoice, delta: RowDelta) -> list[ReplyEvent]:
    """All events of one delta."""
    choice.mailbox.put_delta(delta)
    events: list[ReplyEvent] = []
    while (news := choice.mailbox.take()) is not None and not choice.is_finished:
        events += choice.hear(news)
    return events


def delta(ids: list[int], reason: FinishReason | None = None, **fields: object) -> RowDelta:
    """Tokens with the fake log-probabilities."""
    usage = Usage(prompt_tokens=3, completion_tokens=len(ids))
    finish = None if reason is None else Finish(reason=reason, usage=usage)
    logprobs = tuple(fake_logprobs(id_, 3) for id_ in ids)
    return RowDelta(
        **{"id": SubmitId("r/0"), "tokens": pack_ids(ids), "logprobs": logprobs, "finish": finish, **fields}
    )  # type: ignore[arg-type]


def entries_in(events: list[ReplyEvent]) -> list[TokenEntry]:
    return [entry for event in events if isinstance(event, ChoiceText) for entry in event.entries]


def text_in(events: list[ReplyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ChoiceText))


def test_one_entry_a_token_at_every_split(text: ModelText) -> None:
    """In order, with exact bytes, the engine's alternatives, and the beginning of its text."""
    ids = text.tokenizer.encode_rendered(TEXT)
    for start, cut in pairwise(range(len(ids) + 1)):
        choice = make_choice(text)
        events = heard(choice, delta(ids[:start])) if start else []
        events += heard(choice, delta(ids[start:cut]))
        events += heard(choice, delta(ids[cut:], "length"))
        entries = entries_in(events)
        assert [entry.token.id for entry in entries] == ids
        assert b"".join(entry.token.data for entry in entries).decode() == text_in(events) == TEXT
        assert [entry.token.logprob for entry in entries] == [fake_logprobs(id_, 3).logprob for id_ in ids]
        assert all(len(entry.alternatives) == 3 for entry in entries)
        whole = [entry for entry in entries if entry.token.data.decode("ascii", "ignore")]
        assert all(TEXT.startswith(entry.token.data.decode("ascii", "ignore"), entry.start) for entry in whole)


@pytest.mark.parametrize("stop", ["over t", "🦊", "the", "dog"])
def test_a_stop_cuts_entries_with_the_text(text: ModelText, stop: str) -> None:
    """At every split the same tokens are left: those that have text before the cut."""
    ids = text.tokenizer.encode_rendered(TEXT)
    cut_text = TEXT[: TEXT.find(stop)]
    results: set[tuple[int, ...]] = set()
    for cut in range(1, len(ids)):
        choice = make_choice(text, stops=(stop,))
        events = heard(choice, delta(ids[:cut]))
        if not choice.is_finished:
            events += heard(choice, delta(ids[cut:], "length"))
        entries = entries_in(events)
        assert text_in(events) == cut_text
        assert all(entry.start < len(cut_text) for entry in entries)
        results.add(tuple(entry.token.id for entry in entries))
    assert len(results) == 1
    [left] = results
    assert list(left) == ids[: len(left)]
    assert text.tokenizer.decode(list(left), False).startswith(cut_text)


def test_an_entry_never_comes_before_its_text(text: ModelText) -> None:
    """Half characters and possible stops are held with their entries."""
    choice = make_choice(text, stops=("the end", "lazy cat"))
    told_text, told_bytes = "", b""
    for id_ in text.tokenizer.encode_rendered(TEXT):
        events = heard(choice, delta([id_]))
        told_text += text_in(events)
        told_bytes += b"".join(entry.token.data for entry in entries_in(events))
        assert told_text.encode().startswith(told_bytes)


def test_a_half_character_at_the_end_has_its_entry(text: ModelText) -> None:
    """max_tokens within a character: U+FFFD and the entries of its bytes come with the end."""
    ids = text.tokenizer.encode_rendered("a🦊")[:-1]
    events = heard(choice := make_choice(text), delta(ids, "length"))
    assert text_in(events) == "a\ufffd"
    assert [entry.token.id for entry in entries_in(events)] == ids
    assert choice.is_finished


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_many_or_too_few_are_an_error(text: ModelText, count: int) -> None:
    """Of two tokens; the engine's fault is told, not guessed away."""
    ids = text.tokenizer.encode_rendered(" fox fox")[:2]
    logprobs = tuple(TokenLogprobs(logprob=-1.0) for _ in range(count))
    with pytest.raises(RequestError, match=f"{count} log-probabilities of 2 tokens") as caught:
        heard(make_choice(text), delta(ids, logprobs=logprobs))
    assert caught.value.code == ErrorCode.INTERNAL


def test_the_end_names_the_stop_string_that_made_it(text: ModelText) -> None:
    """A dialect may have to say which of several it was."""
    choice = make_choice(text, logprobs=None, stops=("cow", "fox"))
    events = heard(choice, delta(text.tokenizer.encode_rendered(" fox"), logprobs=None))
    assert events[-1] == ChoiceFinished(0, "stop", "fox")


@pytest.mark.parametrize("has_logprobs", [True, False])
def test_the_token_that_ended_it_is_text_where_stops_are(text: ModelText, has_logprobs: bool) -> None:
    """As in vLLM, with include_stop_str_in_output: it counts as before and has no entry; special ones stay hidden."""
    *ids, last = text.tokenizer.encode_rendered("the lazy dog")
    [eos] = text.tokenizer.encode_rendered("<|im_end|>")
    logprobs = AskedLogprobs(3) if has_logprobs else None
    for end, stops, expected in (
        (last, True, "the lazy dog"),
        (last, False, text.tokenizer.decode(ids, True)),
        (eos, True, text.tokenizer.decode(ids, True)),
    ):
        choice = make_choice(text, logprobs=logprobs, include_stop=stops)
        usage = Usage(prompt_tokens=3, completion_tokens=len(ids) + 1)
        finish = Finish(reason="stop", usage=usage, stop_id=end)
        entries = {} if has_logprobs else {"logprobs": None}
        events = heard(choice, delta(ids, finish=finish, **entries))
        assert (text_in(events), events[-1], choice.usage) == (expected, ChoiceFinished(0, "stop"), usage)
        assert [entry.token.id for entry in entries_in(events)] == (ids if has_logprobs else [])


def test_a_stop_string_waits_for_min_tokens(text: ModelText) -> None:
    """What the first tokens complete is text, and what a later one completes ends the choice."""
    ids = text.tokenizer.encode_rendered(" fox fox fox")
    choice = make_choice(text, logprobs=None, stops=(" fox",), min_tokens=len(ids) // 3)
    events = heard(choice, delta(ids, logprobs=None))
    assert (text_in(events), events[-1]) == (" fox", ChoiceFinished(0, "stop", " fox"))


def test_echo_without_logprobs_comes_first(text: ModelText) -> None:
    """The prompt's text, once, before the choice's own, also for a row that ends at once."""
    ids = text.tokenizer.encode_rendered(" fox")
    for own in (ids, []):
        choice = make_choice(text, logprobs=None, has_echo=True)
        events = heard(choice, delta(own, "stop", logprobs=None))
        assert events[:2] == [ChoiceStarted(0), ChoiceText(0, PROMPT, is_prompt=True)]
        assert text_in(events) == PROMPT + (" fox" if own else "")
        assert events[-1] == ChoiceFinished(0, "stop")


def test_echo_with_logprobs_at_every_split(text: ModelText) -> None:
    """Each token of the prompt has its entry once, the first without a number; then the choice's, further on."""
    prompt = text.tokenizer.encode_text(PROMPT)
    own = text.tokenizer.encode_rendered(" fox")
    logprobs = fake_prompt_logprobs(prompt, WANTED)
    assert logprobs is not None
    results = []
    for cut in range(len(prompt) + 1):
        choice = make_choice(text, has_echo=True)
        events = []
        for part in (logprobs[:cut], logprobs[cut:]):
            if part:
                events += heard(choice, RowDelta(id=SubmitId("r/0"), prompt_logprobs=part))
        events += heard(choice, delta(own, "length"))
        assert text_in(events) == PROMPT + " fox"
        results.append(entries_in(events))
    assert all(result == results[0] for result in results)
    entries = results[0]
    assert [entry.token.id for entry in entries] == [*prompt, *own]
    assert entries[0].token.logprob is None
    assert entries[1].token.logprob == fake_logprobs(prompt[1], 0).logprob
    assert entries[len(prompt)].start == len(PROMPT)


def test_a_long_echo_comes_in_pieces(text: ModelText) -> None:
    """So that nobody waits for all of it; tokens that came behind it wait for their turn."""
    choice = make_choice(text, has_echo=True)
    choice.mailbox.put_delta(RowDelta(id=SubmitId("r/0"), prompt_logprobs=(None,) * (PROMPT_ENTRIES_PER_TAKE + 1)))
    choice.mailbox.put_delta(delta([5]))
    takes = [choice.mailbox.take() for _ in range(4)]
    counts = [None if news is None else (len(news.prompt_logprobs), len(news.ids)) for news in takes]
    assert counts == [(PROMPT_ENTRIES_PER_TAKE, 0), (1, 0), (0, 1), None]


def test_a_prompt_told_in_part_is_an_error(text: ModelText) -> None:
    """Tokens of the choice before the prompt's last entry, or more entries than the prompt has tokens."""
    count = len(text.tokenizer.encode_text(PROMPT))
    first, all_and_one = (RowDelta(id=SubmitId("r/0"), prompt_logprobs=(None,) * told) for told in (1, count + 1))
    choice = make_choice(text, has_echo=True)
    heard(choice, first)
    with pytest.raises(RequestError, match=f"1 log-probabilities of {count} tokens"):
        heard(choice, delta([5]))
    with pytest.raises(RequestError, match=f"{count + 1} log-probabilities of {count} tokens"):
        heard(make_choice(text, has_echo=True), all_and_one)


def test_an_echo_alone_drops_what_was_generated(text: ModelText) -> None:
    """max_tokens 0: one token was generated to get there; it is no text, no entry and no usage."""
    prompt = text.tokenizer.encode_text(PROMPT)
    choice = make_choice(text, has_echo=True, max_tokens=0)
    events = heard(choice, RowDelta(id=SubmitId("r/0"), prompt_logprobs=fake_prompt_logprobs(prompt, WANTED)))
    events += heard(choice, delta([5], "stop"))
    assert text_in(events) == PROMPT
    assert [entry.token.id for entry in entries_in(events)] == prompt
    assert events[-1] == ChoiceFinished(0, "length")
    assert choice.usage == Usage(prompt_tokens=3, completion_tokens=0)


def test_a_call_has_the_id_that_the_model_wrote_once(text: ModelText) -> None:
    """A second call of the same id, and one without, get ids of ours."""
    choice = make_choice(text)
    begun = [CallBegun("now", "functions.now:0"), CallBegun("now", "functions.now:0"), CallBegun("now")]
    ids = [getattr(choice._event(one, ()), "id", "") for one in begun]
    assert ids[0] == "functions.now:0"
    assert len(set(ids)) == 3
    assert all(id_.startswith("call_") for id_ in ids[1:])
