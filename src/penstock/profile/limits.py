"""The range of every number in a profile."""

from typing import Annotated

import msgspec

# Limits far beyond real values, small enough that sums and products never overflow.
MAX_SECONDS = 1e9
MAX_BYTES = 2**60
MAX_MICRO_BATCH_SIZE = 2**40
MAX_RATIO = 1e6

Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=MAX_MICRO_BATCH_SIZE)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=MAX_RATIO)]
