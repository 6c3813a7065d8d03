"""TextPipeline: stop strings cut the text wherever tokens are cut, and no part of one leaves."""

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.parsers.base import ReasoningFormat
from frontend.text.events import TextOutput
from frontend.text.pipeline import TextOptions, TextPipeline
from frontend.text.structure import ReplyForm
from frontend.text.tokenizer import Tokenizer

TEXT = "The fox STOPS here 😀 and 漢字 STOP there. END"
STOPS = ["STOP", " STOP", "😀", "漢字 ", "The", "D", "STOPS", "fox STOPS here 😀 and", "there. END", "nowhere"]


def machine(tokenizer: Tokenizer, *stops: str, include_stop: bool = False) -> TextPipeline:
    """A pipeline with the usual settings."""
    return TextPipeline(tokenizer, TextOptions(stops=stops, include_stop=include_stop))


@pytest.mark.parametrize("include_stop", [False, True])
@pytest.mark.parametrize("stop", [*STOPS, "\ufffd"])
def test_each_token_is_told_once_at_every_split(tokenizer: Tokenizer, stop: str, include_stop: bool) -> None:
    """With its text or after it, and where its text begins; a stop takes those with it that have none before."""
    ids = tokenizer.encode_rendered(TEXT)
    whole = spanned(tokenizer, stop, include_stop)
    starts = [*whole.feed(ids).starts, *whole.finish().starts]
    text = cut_at(TEXT, stop, include_stop)
    ends = [len(tokenizer.decode(ids[: index + 1], True).rstrip("\ufffd")) for index in range(len(ids))]
    assert starts == sorted(starts)
    assert len(starts) == sum(1 for begin in [0, *ends[:-1]] if begin < len(text))
    for cut in range(len(ids) + 1):
        pipeline, told, sent = spanned(tokenizer, stop, include_stop), [], ""
        for feed in (ids[:cut], ids[cut:], None):
            output = pipeline.finish() if feed is None else pipeline.feed(feed)
            told += output.starts
            sent += output.text
            assert all(end <= len(sent) for end in ends[: len(told)]) or output.is_over
        assert (told, sent) == (starts, text)


def spanned(tokenizer: Tokenizer, stop: str, include_stop: bool) -> TextPipeline:
    """A pipeline that says which tokens are told."""
    return TextPipeline(tokenizer, TextOptions(stops=(stop,), include_stop=include_stop, has_spans=True))


class Ran(NamedTuple):
    """The joined text of all outputs, with the last verdict."""

    text: str
    stop: str | None
    consumed_tokens: int


def run(pipeline: TextPipeline, feeds: list[list[int]]) -> Ran:
    """All feeds and the finish."""
    outputs = [*(pipeline.feed(ids) for ids in feeds), pipeline.finish()]
    return Ran("".join(output.text for output in outputs), outputs[-1].stop, outputs[-1].consumed_tokens)


def cut_at(text: str, stop: str, include_stop: bool) -> str:
    """What must be seen of a text."""
    at = text.find(stop)
    return text if at < 0 else text[: at + len(stop) * include_stop]


@pytest.mark.parametrize("include_stop", [False, True])
@pytest.mark.parametrize("stop", STOPS)
def test_text_is_cut_at_the_stop_at_every_split(tokenizer: Tokenizer, stop: str, include_stop: bool) -> None:
    """At once, one by one, and at each cut in two."""
    ids = tokenizer.encode_rendered(TEXT)
    feeds = [[ids], [[id_] for id_ in ids], *([ids[:cut], ids[cut:]] for cut in range(len(ids) + 1))]
    results = {run(machine(tokenizer, stop, include_stop=include_stop), feed) for feed in feeds}
    assert len(results) == 1
    result = results.pop()
    assert result.text == cut_at(TEXT, stop, include_stop)
    assert (result.stop is not None) == (stop in TEXT)


@pytest.mark.parametrize("stop", STOPS)
def test_no_delta_holds_a_part_of_the_stop(tokenizer: Tokenizer, stop: str) -> None:
    """What has left at any moment is a beginning of the cut text."""
    pipeline, sent = machine(tokenizer, stop), ""
    for id_ in tokenizer.encode_rendered(TEXT):
        sent += pipeline.feed([id_]).text
        assert cut_at(TEXT, stop, False).startswith(sent)


def test_consumed_tokens_end_with_the_token_that_completed_the_stop(tokenizer: Tokenizer) -> None:
    """Tokens behind the stop are not counted, also when they come in the same feed."""
    ids = tokenizer.encode_rendered(TEXT)
    completing = next(count for count in range(len(ids) + 1) if "STOP" in tokenizer.decode(ids[:count], True))
    assert machine(tokenizer, "STOP").feed(ids).consumed_tokens == completing


def test_feeds_after_the_stop_return_nothing(tokenizer: Tokenizer) -> None:
    """The verdict stays, the text does not grow."""
    ids = tokenizer.encode_rendered(TEXT)
    pipeline = machine(tokenizer, "fox")
    stopped = pipeline.feed(ids)
    nothing = TextOutput((), stopped.stop, stopped.consumed_tokens, is_over=True)
    assert [pipeline.feed(ids), pipeline.finish()] == [nothing, nothing]


def test_the_stop_completed_first_wins(tokenizer: Tokenizer) -> None:
    """Whatever the order in the list; of two that end together, the longer."""
    ids = tokenizer.encode_rendered("one two three four")
    for stops in (("three", "two"), ("two", "three")):
        assert run(machine(tokenizer, *stops), [ids]).text == "one "
    for stops in (("two", "one two"), ("one two", "two")):
        assert run(machine(tokenizer, *stops), [ids]).text == ""


def test_stop_at_the_first_token_leaves_no_text(tokenizer: Tokenizer) -> None:
    """Nothing is sent before it."""
    ids = tokenizer.encode_rendered("STOP")
    assert run(machine(tokenizer, "S"), [[id_] for id_ in ids]).text == ""


def test_text_held_at_the_end_is_released(tokenizer: Tokenizer) -> None:
    """The beginning of a stop that never came is text."""
    ids = tokenizer.encode_rendered("the ST")
    assert run(machine(tokenizer, "STOP"), [ids]) == Ran("the ST", None, len(ids))


def test_special_tokens_show_only_when_asked(byte_level: Tokenizer) -> None:
    """skip_special_tokens reaches the detokenizer, and a special token can be a stop string then."""
    ids = byte_level.encode_rendered("hello<|im_end|> there")
    shown = TextPipeline(byte_level, TextOptions(skip_special_tokens=False))
    assert run(shown, [ids]).text == "hello<|im_end|> there"
    assert run(machine(byte_level), [ids]).text == "hello there"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_ids_any_stops_any_cut(byte_level: Tokenizer, metaspace: Tokenizer, data: st.DataObject) -> None:
    """Random ids, half characters included: the text never depends on how the ids arrive."""
    for tokenizer in (byte_level, metaspace):
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary_size - 1), max_size=25))
        whole = run(machine(tokenizer), [ids]).text
        places = st.integers(0, max(0, len(whole) - 1))
        stops = [whole[at : at + length] for at, length in data.draw(st.lists(st.tuples(places, st.integers(1, 5))))]
        stops = tuple(stop for stop in stops if stop)
        cut = data.draw(st.integers(0, len(ids)))
        expected = run(machine(tokenizer, *stops), [[id_] for id_ in ids])
        assert run(machine(tokenizer, *stops), [ids]) == expected
        assert run(machine(tokenizer, *stops), [ids[:cut], ids[cut:]]) == expected
        assert (expected.stop is not None) == bool(stops)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_stop_counts_only_behind_min_tokens(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """The first that a token behind them completes, as in vLLM, however the ids arrive; its beginning may be older."""
    ids = tokenizer.encode_rendered(TEXT)
    stops = tuple(data.draw(st.lists(st.sampled_from(STOPS), min_size=1, unique=True)))
    least, cut = data.draw(st.integers(0, len(ids) + 1)), data.draw(st.integers(0, len(ids)))
    passed = len(tokenizer.decode(ids[:least], True).rstrip("\ufffd")) if least else -1
    ends = [end for end in range(len(TEXT) + 1) if end > passed and TEXT[:end].endswith(stops)]
    longest = max((stop for stop in stops if ends and TEXT[: ends[0]].endswith(stop)), key=len, default=None)
    expected = TEXT if longest is None else TEXT[: ends[0] - len(longest)]
    for feeds in ([ids], [[id_] for id_ in ids], [ids[:cut], ids[cut:]]):
        result = run(TextPipeline(tokenizer, TextOptions(stops=stops, min_tokens=least)), feeds)
        assert (result.text, result.stop) == (expected, longest)


def test_a_marker_is_none_the_less_one_before_min_tokens(tokenizer: Tokenizer) -> None:
    """Stop strings alone wait: reasoning begins where it begins, and what was held there is text behind its end."""
    reasoning = ReasoningFormat(name="t", claims=lambda _: True, begins=("<think>",), ends=("</think>",))
    form = ReplyForm(reasoning=reasoning)
    ids = tokenizer.encode_rendered("\n<think>why</think>\nbecause\nso")
    options = TextOptions(stops=("\n", "think"), min_tokens=len(ids))
    result = run(TextPipeline(tokenizer, options, form), [[id_] for id_ in ids])
    assert (result.text, result.stop) == ("because\nso", None)


@pytest.mark.parametrize("has_spans", [False, True])
def test_the_token_that_ended_a_row_may_be_text(byte_level: Tokenizer, has_spans: bool) -> None:
    """Behind all others, completing what they left open; it is not one of those that are consumed and told."""
    ids = byte_level.encode_rendered("so 漢")
    pipeline = TextPipeline(byte_level, TextOptions(has_spans=has_spans))
    fed = pipeline.feed(ids[:-1])
    ended = pipeline.finish(ids[-1])
    assert (fed.text + ended.text, ended.consumed_tokens) == ("so 漢", len(ids) - 1)
    assert len((*fed.starts, *ended.starts)) == (len(ids) - 1) * has_spans
