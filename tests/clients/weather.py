"""The schema and the tool that every Python client asks for."""

from typing import Literal

from pydantic import BaseModel

City = Literal["Oslo", "Lima"]


class Weather(BaseModel):
    """Closed sets only, so that a small model comes to an end; spelt as the JavaScript clients spell it."""

    city: City
    isCold: bool  # noqa: N815  # a field of JSON


class weather(BaseModel):  # noqa: N801  # the tool's name is the class's
    """The weather of a city."""

    city: City
