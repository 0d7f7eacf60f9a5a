"""How many damaged files each reader is tried on: PENSTOCK_FUZZ, or enough for more than ten thousand in all."""

import os

NUM_DAMAGED = int(os.environ.get("PENSTOCK_FUZZ", "1300"))
