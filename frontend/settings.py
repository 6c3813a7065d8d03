"""The frontend process's settings: each field is an option of `python -m frontend`."""

from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from protocol.endpoint import default_runtime_path
from protocol.messages import GenerationDefaults
from protocol.settings import Origin, ReasoningParserOption, TemplateOption, TemplateVariablesOption, ToolParserOption

LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class Address(NamedTuple):
    """A host name or address, and a port."""

    host: str
    port: int


def _default_runtime_dir() -> str:
    return str(default_runtime_path())


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Serves OpenAI's API over HTTP for the engine in a runtime folder."""

    runtime_dir: Annotated[str, Meta(description="folder where the engine's sockets are")] = msgspec.field(
        default_factory=_default_runtime_dir
    )
    fd: (
        Annotated[int, Meta(ge=0, description="inherited listening TCP socket, instead of --host and --port")] | None
    ) = None
    host: Annotated[str, Meta(min_length=1, description="address to listen on; default 127.0.0.1")] | None = None
    port: (
        Annotated[int, Meta(ge=0, le=65_535, description="port to listen on, 0 for a free one; default 8080")] | None
    ) = None
    served_model_name: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="a further name for the model; `*` takes any name; may be repeated"),
    ] = ()
    temp: Annotated[float, Meta(ge=0, le=100, description="temperature of requests that name none")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1, description="top_p of requests that name none; 1 is off")] | None = None
    top_k: Annotated[int, Meta(ge=0, description="top_k of requests that name none; 0 is off")] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1, description="min_p of requests that name none; 0 is off")] | None = None
    max_tokens: (
        Annotated[int, Meta(ge=1, description="max_tokens of requests that name none; left out: no limit")] | None
    ) = None
    tool_parser: ToolParserOption | None = None
    reasoning_parser: ReasoningParserOption | None = None
    engine_wait_s: Annotated[float, Meta(ge=0, description="how long a request waits for an engine to be ready")] = 10.0
    grace_s: Annotated[float, Meta(ge=0, description="how long running requests may go on after SIGTERM")] = 10.0
    stall_s: Annotated[
        float, Meta(gt=0, description="how long a client may leave its stream unread before it is dropped")
    ] = 30.0
    keepalive_s: Annotated[
        float, Meta(ge=0, description="seconds between comment lines in a silent stream; 0 sends none")
    ] = 15.0
    max_body_bytes: Annotated[int, Meta(ge=1_024, description="largest request body")] = 16 * 1024 * 1024
    # Not the keys themselves: a command line can be read by every user of the machine.
    api_key_file: (
        Annotated[str, Meta(min_length=1, description="file of keys, one a line, of which each request must show one")]
        | None
    ) = None
    chat_template: TemplateOption | None = None
    chat_template_args: TemplateVariablesOption | None = None
    use_default_chat_template: Annotated[bool, Meta(description="ChatML, for a model without a template")] = False
    allowed_origins: Annotated[
        tuple[Origin, ...],
        Meta(description="of web pages that may use this server; `*` is all; may be repeated; left out: none"),
    ] = ()
    response_store_bytes: Annotated[
        int, Meta(ge=0, description="most that stored responses may take, all frontends together; 0 stores none")
    ] = 64 * 1024 * 1024
    response_ttl_s: Annotated[int, Meta(ge=1, description="how long a stored response is kept unused")] = 2_592_000
    exit_with_parent: Annotated[bool, Meta(description="stop when the parent process is gone")] = False
    log_level: Annotated[LogLevel, Meta(description="least severe log lines to show")] = "info"

    @property
    def sampling_defaults(self) -> GenerationDefaults:
        """The flags that were given; they win over the model's own defaults."""
        return GenerationDefaults(temperature=self.temp, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)

    @property
    def address(self) -> Address:
        """Where to listen when no socket was inherited."""
        return Address(self.host or "127.0.0.1", 8080 if self.port is None else self.port)
