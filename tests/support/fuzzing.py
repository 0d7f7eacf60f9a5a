"""Number of damaged files for each reader: PENSTOCK_FUZZ, or enough for more than ten thousand in total."""

import os

NUM_DAMAGED = int(os.environ.get("PENSTOCK_FUZZ", "1300"))
