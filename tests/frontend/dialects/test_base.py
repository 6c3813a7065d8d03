"""WholeChoice: what a reply that is not streamed is made of; a call that broke is text in it, in its place."""

from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceStarted,
    ChoiceText,
    ReplyEvent,
    TokenChance,
    TokenEntry,
    ToolCallArguments,
    ToolCallBroken,
    ToolCallFinished,
    ToolCallStarted,
    WholeChoice,
)

ENTRIES = tuple(TokenEntry(TokenChance(id_, b"x", -1.0), (), id_) for id_ in range(3))
BROKEN: list[ReplyEvent] = [
    ToolCallStarted(0, 0, "call_a", "weather"),
    ToolCallArguments(0, 0, '{"ci', ENTRIES[1:2]),
    ToolCallArguments(0, 0, 'ty": ', ENTRIES[2:]),
    ToolCallBroken(0, 0, '<call>weather {"city": '),
]
WHOLE: list[ReplyEvent] = [
    ToolCallStarted(0, 1, "call_b", "now"),
    ToolCallArguments(0, 1, "{}"),
    ToolCallFinished(0, 1),
]


def collected(events: list[ReplyEvent]) -> WholeChoice:
    choice = WholeChoice(0)
    for event in events:
        choice.add(event)
    return choice


def test_a_broken_call_is_text() -> None:
    """With the log-probabilities of its tokens, and no call is left to end the reply."""
    before = [ChoiceStarted(0), ChoiceText(0, "So: ", ENTRIES[:1])]
    choice = collected([*before, *BROKEN, ChoiceText(0, "Oslo"), ChoiceFinished(0, "tool_calls")])
    assert (choice.text, choice.calls, choice.reason) == ('So: <call>weather {"city": Oslo', [], "stop")
    assert choice.entries == list(ENTRIES)
    assert choice.events == [
        *before,
        ChoiceText(0, '<call>weather {"city": ', ENTRIES[1:]),
        ChoiceText(0, "Oslo"),
        ChoiceFinished(0, "stop"),
    ]


def test_other_calls_stay() -> None:
    """Before it and behind it."""
    for events in ([*WHOLE, *BROKEN], [*BROKEN, *WHOLE]):
        choice = collected([*events, ChoiceFinished(0, "tool_calls")])
        assert [(call.name, call.arguments) for call in choice.calls] == [("now", "{}")]
        assert (choice.reason, choice.text) == ("tool_calls", '<call>weather {"city": ')
