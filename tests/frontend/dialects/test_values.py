"""Strict readers: no value is coerced, and bounds are inclusive."""

import pytest

from frontend.dialects.values import Above, Bounds, as_body, is_same_json, read_integer, read_number, shown
from frontend.errors import RequestError


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        ({"type": "text"}, {"type": "text"}, True),
        ([], {}, False),
        ("", None, False),
    ],
)
def test_equality_is_that_of_json(left: object, right: object, expected: bool) -> None:
    """Numbers are equal by value, and truth values are no numbers."""
    assert is_same_json(left, right) is expected


@pytest.mark.parametrize("value", [1, 5])
def test_bounds_are_inclusive(value: int) -> None:
    """Both ends are taken."""
    assert read_integer({"x": value}, "x", Bounds(1, 5)) == value


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounds(), "a number"),
        (Bounds(least=1), "a number of at least 1"),
        (Bounds(most=2), "a number of at most 2"),
        (Bounds(1, 2), "a number from 1 to 2"),
        (Bounds(1, 2, off=0), "a number from 1 to 2, or 0 for off"),
        (Above(1, 2), "a number above 1 and of at most 2"),
    ],
)
def test_bounds_are_told(bounds: Bounds | Above, expected: str) -> None:
    """In words, as far as there are any."""
    with pytest.raises(RequestError) as caught:
        read_number({"x": "y"}, "x", bounds)
    assert caught.value.message == f'`x` must be {expected}, not "y"'


def test_an_off_outside_of_the_bounds_is_taken() -> None:
    """That value and no other."""
    assert read_integer({"x": -1}, "x", Bounds(1, 5, off=-1)) == -1
    with pytest.raises(RequestError):
        read_integer({"x": 0}, "x", Bounds(1, 5, off=-1))


def test_a_bound_may_be_exclusive() -> None:
    """Below, as a top_p of 0 is."""
    assert read_number({"x": 1e-9}, "x", Above(0, 5)) == 1e-9
    with pytest.raises(RequestError):
        read_number({"x": 0}, "x", Above(0, 5))


def test_an_integer_is_a_number() -> None:
    """And arrives as a float."""
    assert isinstance(read_number({"x": 1}, "x", Bounds(0, 2)), float)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_are_finite(value: float) -> None:
    """Also where no bound excludes them."""
    with pytest.raises(RequestError):
        read_number({"x": value}, "x", Bounds())


def test_values_are_shown_as_json_and_short() -> None:
    """A client knows null and true, not None and True."""
    assert shown([None, True, "é"]) == '[null,true,"é"]'
    assert len(shown("x" * 1000)) == 81


@pytest.mark.parametrize("body", [[1], "x", 7, None, True])
def test_a_body_is_an_object(body: object) -> None:
    """No field is to blame for one that is not."""
    with pytest.raises(RequestError) as caught:
        as_body(body)
    assert caught.value.param is None
    assert caught.value.message.startswith("the request body must be a JSON object, not ")
