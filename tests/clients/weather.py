"""The schema that every Python client asks for."""

from typing import Literal

from pydantic import BaseModel


class Weather(BaseModel):
    """Closed sets only, so that a small model comes to an end; spelt as the JavaScript clients spell it."""

    city: Literal["Oslo", "Lima"]
    isCold: bool  # noqa: N815  # a field of JSON
