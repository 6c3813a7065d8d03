"""The walk over a body: each verdict does what it says, in every dialect's table."""

import pytest

from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, NeutralOnly, check_fields
from frontend.errors import RequestError
from protocol.errors import ErrorCode
from tests.frontend.dialects.every_field import DIALECTS, VALUES, Spoken

TABLE: FieldTable = {
    "read": Honoured(),
    "risky": NeutralOnly((1, "off"), "turn it off"),
    "never": NeutralOnly(),
    "quiet": Harmless("no effect"),
    "said": Named((False,)),
}


def test_known_fields_pass_in_silence() -> None:
    """Honoured, harmless, and neutral values of the others."""
    assert check_fields({"read": 1, "risky": 1, "never": None, "quiet": [1], "said": False}, TABLE) == ()


def test_fields_without_effect_are_named_in_the_bodys_order() -> None:
    """Unknown ones, and known ones with a value that asks for something."""
    assert check_fields({"b": 1, "said": True, "a": None}, TABLE, prefix="x.") == ("x.b", "x.said", "x.a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"risky": 2}, "`x.risky` with the value 2 is not supported: turn it off or send 1"),
        ({"risky": True}, "`x.risky` with the value true is not supported: turn it off or send 1"),
        ({"never": "y"}, '`x.never` with the value "y" is not supported: leave it out'),
    ],
)
def test_a_refusal_says_field_value_and_what_to_do(body: dict[str, object], message: str) -> None:
    """With the whole name as param."""
    with pytest.raises(RequestError) as caught:
        check_fields(body, TABLE, prefix="x.")
    assert (caught.value.code, caught.value.message) == (ErrorCode.UNSUPPORTED, message)
    assert caught.value.param == f"x.{next(iter(body))}"


@pytest.mark.parametrize("name", DIALECTS)
def test_every_honoured_field_changes_what_is_asked(name: str) -> None:
    """A field that is read and then forgotten would be ignored in silence; `user` alone has nothing to change."""
    dialect = DIALECTS[name]
    honoured = {field for field, rule in dialect.table.items() if isinstance(rule, Honoured)}
    forgotten = {field for field in honoured if not any(_is_heard(dialect, field, value) for value in VALUES)}
    assert forgotten - {"user"} == set()


def _is_heard(dialect: Spoken, field: str, value: object) -> bool:
    """Whether the value makes another Generation, with or without what the field may need beside it."""
    for beside in ({}, *dialect.beside):
        body = {**dialect.least, **beside}
        try:
            if dialect.parse({**body, field: value}) != dialect.parse(body):
                return True
        except RequestError:
            continue
    return False
