"""Every error code that may cross the wire; the frontend maps each to an HTTP status in one table."""

from enum import StrEnum
from typing import Final

# Exit status of a process that cannot start as it was told to: a supervisor must not try again (EX_CONFIG).
EXIT_BAD_SETTING: Final = 78


class ErrorCode(StrEnum):
    """Why a request, a frame or a process was refused or ended."""

    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED = "unsupported"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    MODEL_NOT_FOUND = "model_not_found"
    QUEUE_FULL = "queue_full"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    LEASE_LOST = "lease_lost"
    PREFILL_FAILED = "prefill_failed"
    DECODE_FAILED = "decode_failed"
    OUT_OF_MEMORY = "out_of_memory"
    MALFORMED_FRAME = "malformed_frame"
    VERSION_MISMATCH = "version_mismatch"
    DUPLICATE_ID = "duplicate_id"
    INTERNAL = "internal"
    BAD_SETTING = "bad_setting"
    BAD_MODEL = "bad_model"
    RUNTIME_FOLDER = "runtime_folder"


class ProtocolError(Exception):
    """A frame, folder or endpoint that breaks the protocol's rules."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
