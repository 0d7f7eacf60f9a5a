"""The text that describes what an engine runs: ENGINE:STAGES KEY=VALUE ..."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InputError
from penstock.names import suggest_names

KEYS = ("pp", "dp", "devices", "cuts", "recompute")
EXAMPLE = 'For example: --against "megatron:Ett|ttt|tttL dp=2".'


@dataclass(frozen=True)
class Description:
    """A parsed description.

    Attributes:
        text: The description as it was written, for errors.
        engine: The engine.
        stages: Its stages in the engine's own form.
        options: The values of the keys that follow.
    """

    text: str
    engine: str
    stages: str
    options: Mapping[str, str]

    def number(self, key: str) -> int | None:
        """The positive number of a key; None if it is absent."""
        value = self.options.get(key)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and int(value[:9]) >= 1 and len(value) <= 6):
            raise InputError(f"{key}={value[:20]} must be a number from 1 to 999999", where=self.text)
        return int(value)

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """The numbers of a key, separated by commas; None if it is absent."""
        value = self.options.get(key)
        return None if value is None else parse_numbers(value, where=f"{key} of {self.text}")

    def refuse(self, *keys: str) -> None:
        """Refuse keys that this engine's form does not have."""
        for key in keys:
            if key in self.options:
                raise InputError(f"{self.engine} has no {key}=", where=self.text, hint=f"Leave {key}= out.")


def parse_numbers(text: str, *, where: str) -> tuple[int, ...]:
    """Numbers separated by commas.

    >>> parse_numbers("0,2,6", where="cuts")
    (0, 2, 6)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts):
        raise InputError(f"{text[:60]!r} is no list of numbers", where=where, hint="Write, for example, 0,2,6.")
    return tuple(int(part) for part in parts)


def parse_description(text: str, engines: tuple[str, ...]) -> Description:
    """Parse a description.

    Args:
        text: The description.
        engines: The engines that can be imported.

    Raises:
        InputError: The engine or a key is unknown, or there are no stages.
    """
    engine, colon, rest = text.partition(":")
    words = rest.split()
    if engine not in engines:
        hint = suggest_names(engine[:60], dict.fromkeys(engines), label="Engines", most=20)
        raise InputError(f"unknown engine {engine[:60]!r}", where=text[:100], hint=hint)
    if not colon or not words:
        raise InputError("no stages are given", where=text[:100], hint=EXAMPLE)
    options: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in KEYS or not equals or not value:
            raise InputError(f"{word[:60]!r} is not KEY=VALUE", where=text[:100], hint=f"Keys: {', '.join(KEYS)}.")
        if key in options:
            raise InputError(f"{key}= is given twice", where=text[:100])
        options[key] = value
    return Description(text[:100], engine, words[0], options)
