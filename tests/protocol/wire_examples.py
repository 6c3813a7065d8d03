"""Owns the messages whose frames are kept in goldens/wire: each at its fullest and at its least."""

from typing import Final

from protocol import messages as m
from protocol import status as s
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.sampling import Sampling, TokenBias

AnyMessage = m.AnyToEngine | m.AnyFromEngine | s.EngineStatus

_SAMPLING: Final = Sampling(
    temperature=0.75,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    xtc_probability=0.5,
    xtc_threshold=0.125,
    repetition_penalty=1.125,
    repetition_context=64,
    presence_penalty=0.25,
    presence_context=32,
    frequency_penalty=-0.5,
    frequency_context=16,
    logit_bias=(TokenBias(id=7, bias=-100.0), TokenBias(id=49_151, bias=1.5)),
    bad_words=((5,), (7, 49_151)),
    allowed_ids=(1, 2, 49_151),
    xtc_spared_ids=(2, 198),
)
_USAGE: Final = m.Usage(prompt_tokens=12, completion_tokens=3, cached_tokens=8)
_BATCHING: Final = m.Batching(mode="serial", reason="layer 3 keeps a sliding window")
_FACTS: Final = m.ModelFacts(
    id="SmolLM2-135M-Instruct",
    aliases=("default", "*"),
    path="models/SmolLM2-135M-Instruct",
    context_length=8_192,
    vocabulary_size=49_152,
    eos_ids=(2, 0),
    bos=m.BosRule(id=1, add=False),
    defaults=m.GenerationDefaults(temperature=0.5, top_k=50, top_p=0.875, min_p=0.0625, repetition_penalty=1.25),
    batching=_BATCHING,
    limits=m.Limits(max_rows=32, max_waiting=256, max_frame_bytes=8_388_608),
    dtype="float32",
    device="cpu",
    sampling=("temperature", "logit_bias"),
    draft_model="tiny",
    created=1_735_689_600,
    fingerprint="fp_0123456789ab",
    wants_snapshots=True,
    model_context_length=131_072,
    kv_budget_bytes=2_000_000_000,
)
_LEAST_FACTS: Final = m.ModelFacts(
    id="m",
    path="m",
    context_length=1,
    vocabulary_size=1,
    eos_ids=(),
    bos=m.BosRule(),
    defaults=m.GenerationDefaults(),
    batching=m.Batching(mode="batch", reason=""),
    limits=m.Limits(max_rows=1, max_waiting=0, max_frame_bytes=1),
    dtype="",
    device="",
)

TO_ENGINE: Final[dict[str, m.AnyToEngine]] = {
    "hello_full": m.Hello(
        epoch="e1",
        attempt=1,
        protocol_version=1,
        client=m.ClientInfo(name="frontend-1", pid=4_711, listens=("http://127.0.0.1:8080",)),
    ),
    "hello_least": m.Hello(epoch="e1", protocol_version=1, client=m.ClientInfo(name="f", pid=0)),
    "submit_full": m.Submit(
        epoch="e1",
        attempt=2,
        id="chatcmpl-1:1",
        group="chatcmpl-1",
        choice=1,
        model="SmolLM2-135M-Instruct",
        prompt=m.TokenPrompt(ids=pack_ids([1, 256, 65_536, 2**32 - 1])),
        max_tokens=128,
        sampling=_SAMPLING,
        seed=2**63 - 1,
        stop_ids=(2, 17),
        ignore_eos=True,
        min_tokens=4,
        grammar=m.Grammar(kind="json_schema", text='{"type": "object"}'),
        logprobs=m.LogprobsWanted(top=5, of_prompt=True),
        priority=-1,
        deadline_ms=30_000,
        cache_salt="agent 7",
        adapter="tuned",
        snapshot_at=(1, 3),
        generated=pack_ids([9, 10]),
        draft_tokens=4,
    ),
    "submit_least": m.Submit(epoch="e1", id="a", group="a", model="m", prompt=m.TokenPrompt(ids=b"")),
    "cancel_full": m.Cancel(epoch="e1", attempt=2, id="chatcmpl-1:1", reason="gone", keep_tokens=12),
    "cancel_least": m.Cancel(epoch="e1", id="a", reason="stop"),
    "leave_full": m.Leave(epoch="e1", attempt=1),
    "leave_least": m.Leave(epoch="e1"),
    "ping_full": m.Ping(epoch="e1", attempt=1, parsers=m.ParserNames(tools="hermes", reasoning="think")),
    "ping_least": m.Ping(epoch="e1"),
    "fetch_tokenizer_full": m.FetchTokenizer(epoch="e1", attempt=1, name="tokenizer.json", offset_bytes=1_048_576),
    "fetch_tokenizer_least": m.FetchTokenizer(epoch="e1", name="t"),
    "control_full": m.Control(epoch="e1", attempt=1, id="c1", command="mount_adapter", argument="adapters/tuned"),
    "control_least": m.Control(epoch="e1", id="c", command="flush_prefixes"),
}

FROM_ENGINE: Final[dict[str, m.AnyFromEngine]] = {
    "welcome_full": m.Welcome(
        epoch="e1",
        protocol_version=1,
        facts=_FACTS,
        tokenizer=m.TokenizerManifest(
            sha256="ab" * 32,
            files=(m.TokenizerFile(name="tokenizer.json", length_bytes=2_000_000),),
        ),
    ),
    "welcome_least": m.Welcome(
        epoch="e1", protocol_version=1, facts=_LEAST_FACTS, tokenizer=m.TokenizerManifest(sha256="", files=())
    ),
    "tokenizer_chunk_full": m.TokenizerChunk(
        epoch="e1", name="tokenizer.json", offset_bytes=1_048_576, data=b'{"version":\x00\xff}', is_last=True
    ),
    "tokenizer_chunk_least": m.TokenizerChunk(epoch="e1", name="t", offset_bytes=0, data=b"", is_last=False),
    "step_full": m.Step(
        epoch="e1",
        step=77,
        rows=(
            m.RowDelta(
                id="chatcmpl-1:0",
                tokens=pack_ids([5, 49_151]),
                logprobs=(
                    m.TokenLogprobs(logprob=-0.25, top_ids=pack_ids([5, 6]), top=(-0.25, -1.5)),
                    m.TokenLogprobs(logprob=-2.0, top_ids=pack_ids([8, 9]), top=(-0.5, -1.0)),
                ),
                finish=m.Finish(
                    reason="error",
                    usage=_USAGE,
                    timings=m.Timings(queue_ms=1.5, prefill_ms=20.25, decode_ms=300.5),
                    stop_id=2,
                    code=ErrorCode.DECODE_FAILED,
                    message="the forward of step 77 failed",
                ),
                prefilled=4_096,
                cached_tokens=2_048,
                prompt_logprobs=(None, m.TokenLogprobs(logprob=-3.5, top_ids=pack_ids([8]), top=(-0.125,))),
            ),
        ),
    ),
    "step_least": m.Step(
        epoch="e1",
        step=0,
        rows=(
            m.RowDelta(id="a"),
            m.RowDelta(id="b", finish=m.Finish(reason="stop", usage=m.Usage(prompt_tokens=1, completion_tokens=1))),
        ),
    ),
    "rejected_full": m.Rejected(
        epoch="e1",
        code=ErrorCode.QUEUE_FULL,
        message="256 requests wait; try again",
        id="chatcmpl-1:1",
        param="model",
        retry_after_s=1.5,
    ),
    "rejected_least": m.Rejected(epoch="e1", code=ErrorCode.MALFORMED_FRAME, message=""),
    "control_done_full": m.ControlDone(
        epoch="e1", id="c1", error="no such adapter", dropped_entries=3, dropped_bytes=4_000
    ),
    "control_done_least": m.ControlDone(epoch="e1", id="c"),
    "goodbye_full": m.Goodbye(epoch="e1", reason="version_mismatch", message="the engine speaks version 1"),
    "goodbye_least": m.Goodbye(epoch="e1", reason="shutting_down"),
}

STATUS: Final[dict[str, s.EngineStatus]] = {
    "status_full": s.EngineStatus(
        epoch="e1",
        protocol_version=1,
        pid=4_712,
        phase="draining",
        phase_detail="waiting for 3 rows",
        uptime_s=12.5,
        restarts=2,
        model=s.ModelStatus(
            id="SmolLM2-135M-Instruct",
            path="models/SmolLM2-135M-Instruct",
            dtype="float32",
            device="cpu",
            context_length=8_192,
            max_rows=32,
            model_context_length=131_072,
        ),
        batching=_BATCHING,
        rows=s.RowCounts(waiting=1, prefilling=2, decoding=3, oldest_waiting_ms=1_500.5, waiting_for_memory=9),
        step=s.StepStatus(
            count=1_000,
            age_ms=4.5,
            last_ms=25.25,
            times_ms=s.Histogram(bounds=(10.0, 20.0), counts=(1, 998, 1), sum=25_250.0),
            gaps_ms=s.Histogram(bounds=(10.0,), counts=(0, 999), sum=40_000.5),
        ),
        tokens=s.TokenStatus(
            prompt_total=9_000, generated_total=800, generated_per_s=64.5, drafted_total=30, accepted_total=20
        ),
        memory=s.MemoryStatus(
            active_bytes=5,
            cache_bytes=4,
            peak_bytes=6,
            weights_bytes=3,
            kv_bytes=2,
            ledger_bytes=1,
            budget_bytes=7,
        ),
        counters=s.Counters(
            submitted=15,
            finished=4,
            cancelled=2,
            failed=1,
            rejected=2,
            malformed_frames=7,
            stale_messages=8,
            preemptions=10,
        ),
        frontends=(
            s.FrontendStatus(
                name="frontend-1",
                pid=4_711,
                listens=("http://127.0.0.1:8080",),
                rows=3,
                silent_s=0.5,
                parsers=m.ParserNames(tools="hermes", reasoning="think"),
            ),
        ),
        adapters=("sql", "poems"),
        prefix=s.PrefixStatus(
            entries=4,
            size_bytes=40,
            limit_bytes=100,
            evictions=5,
            hits=10,
            misses=6,
            queried_tokens=9_100,
            hit_tokens=8_000,
            exact=1,
            snapshot=2,
            cut=3,
            live=4,
            unasked=7,
            reason="the cache is too small",
        ),
    ),
    "status_least": s.EngineStatus(epoch="e1", protocol_version=1, pid=1, phase="starting"),
}

EXAMPLES: Final[dict[str, AnyMessage]] = {**TO_ENGINE, **FROM_ENGINE, **STATUS}
