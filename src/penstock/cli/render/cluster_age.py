"""A warning for clusters that were measured long ago."""

from datetime import UTC, datetime

from penstock.cli.console import Console
from penstock.cluster import Cluster, age_warning


def warn_if_old(console: Console, cluster: Cluster) -> None:
    """Warn if it was measured more than a month ago."""
    if text := age_warning(cluster, datetime.now(UTC)):
        console.warn(text)
