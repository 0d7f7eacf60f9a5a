"""The number of examples of property tests: all with `pytest --thorough`, a quarter without."""

from typing import Any

from hypothesis import settings

THOROUGH = "thorough"
PART = 4
LEAST = 8


def examples(number: int, **more: Any) -> settings:
    """Settings for a property test with this number of examples in a thorough run."""
    if not is_thorough():
        number = min(number, max(LEAST, number // PART))
    return settings(max_examples=number, deadline=None, **more)


def is_thorough() -> bool:
    """Whether the run is one with `--thorough`."""
    return settings.get_current_profile_name() == THOROUGH
