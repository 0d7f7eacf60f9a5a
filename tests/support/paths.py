"""Where the repository's own files are, for tests that read them."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "penstock"
DOCS = REPOSITORY / "docs"
CLUSTERS = REPOSITORY / "examples" / "clusters"
INSTANCES = Path(os.environ.get("PENSTOCK_INSTANCES") or REPOSITORY.parent / "shared" / "instances")
"""Published profiles; tests that need them are skipped where they are missing."""
