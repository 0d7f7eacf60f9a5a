"""Training runs of ranks on the test device."""

from collections.abc import Sequence

from tests.support.late_device.device import Settings
from tests.support.late_device.ranks import checked_device
from tests.support.runtime.training import Job, Trained, train


def train_on_device(jobs: Sequence[tuple[Job, Settings]]) -> list[Trained]:
    """Train one rank in several runs. Raise if work on the device was not ordered."""
    results = []
    for job, settings in jobs:
        with checked_device(settings):
            results.append(train(job))
    return results
