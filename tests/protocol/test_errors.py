"""Error codes are their own wire strings."""

from protocol.errors import ErrorCode, ProtocolError


def test_a_code_is_its_name_in_lower_case() -> None:
    """One spelling in code, on the wire and in a log."""
    assert [code.value for code in ErrorCode] == [code.name.lower() for code in ErrorCode]


def test_an_error_shows_its_message() -> None:
    """A process's last word is the message, with the code beside it."""
    error = ProtocolError(ErrorCode.BAD_SETTING, "--port 0: taken")
    assert (str(error), error.code, error.message) == ("--port 0: taken", ErrorCode.BAD_SETTING, "--port 0: taken")
