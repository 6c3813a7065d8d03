"""The engine's one error type: a code of the protocol with what, with which value, and what to do."""

from protocol.errors import ErrorCode


class DeviceLost(Exception):  # noqa: N818  # it is lost, which is more than an error
    """The device fails whatever is asked of it; a process that begins anew may find it well."""


class EngineError(Exception):
    """A request, a model or a start that the engine refuses.

    param: the name of the offending field. retry_after_s: seconds after which trying again may help.
    """

    def __init__(
        self, code: ErrorCode, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
