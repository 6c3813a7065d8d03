"""The FakeEngine's log-probabilities: a plain function of the token's id, so that a test can work them out."""

from protocol.codec import pack_ids
from protocol.messages import LogprobsWanted, TokenLogprobs


def fake_logprobs(id_: int, top: int) -> TokenLogprobs:
    """Of every third id the chosen token is none of the likeliest; of all others it is the first. Exact as float32."""
    own = -1 - (id_ % 16) / 16
    is_first = id_ % 3 != 0
    ids = [max(0, id_ - number) for number in range(top)] if is_first else [id_ + 1 + number for number in range(top)]
    best = own if is_first else own + 0.5
    return TokenLogprobs(
        logprob=own, top_ids=pack_ids(ids), top=tuple(best - number / 64 for number in range(len(ids)))
    )


def fake_row_logprobs(ids: list[int], wanted: LogprobsWanted | None) -> tuple[TokenLogprobs, ...] | None:
    """Of emitted tokens, as a RowDelta has them."""
    return None if wanted is None else tuple(fake_logprobs(id_, wanted.top) for id_ in ids)


def fake_prompt_logprobs(ids: list[int], wanted: LogprobsWanted | None) -> tuple[TokenLogprobs | None, ...] | None:
    """Of a whole prompt; the first token has none."""
    if wanted is None or not wanted.of_prompt:
        return None
    return (None, *(fake_logprobs(id_, wanted.top) for id_ in ids[1:]))
