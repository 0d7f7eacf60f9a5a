"""Paths of the repository's files, for tests that read them."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "penstock"
DOCS = REPOSITORY / "docs"
CLUSTERS = REPOSITORY / "examples" / "clusters"
INSTANCES = Path(os.environ.get("PENSTOCK_INSTANCES") or REPOSITORY.parent / "shared" / "instances")
"""Published profiles. Tests that need them are skipped if the folder does not exist."""
