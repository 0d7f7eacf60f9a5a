"""A word to whoever uses a cluster that was measured long ago."""

from datetime import UTC, datetime

from penstock.cli.console import Screen
from penstock.cluster import Cluster, age_doubt


def warn_if_old(screen: Screen, cluster: Cluster) -> None:
    """Warn if it was measured more than a month ago."""
    if text := age_doubt(cluster, datetime.now(UTC)):
        screen.warn(text)
