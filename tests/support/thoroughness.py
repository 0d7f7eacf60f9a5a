"""How many random cases a property test looks at: all with `pytest --thorough`, else as many as CI can wait for."""

from typing import Any

from hypothesis import settings

THOROUGH = "thorough"
PART = 4
LEAST = 8


def examples(number: int, **more: Any) -> settings:
    """Settings for a property test that is thorough with so many examples."""
    if settings.get_current_profile_name() != THOROUGH:
        number = min(number, max(LEAST, number // PART))
    return settings(max_examples=number, deadline=None, **more)
