"""Random plans on the test device: the numbers of one process, and no race."""

import torch

from penstock.plan.types import Plan
from tests.support.late_device.device import NAME, Settings
from tests.support.late_device.ranks import checked_device
from tests.support.runtime.chains import train, train_single_process
from tests.support.runtime.rank_pool import RankPool
from tests.support.strategies import Case


def train_chain(
    plan: Plan, tied: tuple[int, ...], num_rows: int, settings: Settings
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], bool]:
    """Train one rank. Raise if work on the device was not ordered."""
    with checked_device(settings):
        return train(plan, tied, num_rows, NAME)


def compare(pool: RankPool, case: Case, num_rows: int, settings: Settings) -> bool:
    """Compare training on the device with training in one process on the CPU. Return whether all sums had one order."""
    tied = tuple(sorted(case.profile.ties[0].units)) if case.profile.ties else ()
    ranks = pool.run(len(case.plan.devices), train_chain, case.plan, tied, num_rows, settings)
    losses, parameters = train_single_process(case.plan, tied, num_rows)
    assert {name for _, found, _ in ranks for name in found} == set(parameters)
    for found_losses, found, exact in ranks:
        pairs = [*zip(found_losses, losses, strict=True), *((found[name], parameters[name]) for name in found)]
        for one, other in pairs:
            assert torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-10, atol=1e-12)
    return all(exact for _, _, exact in ranks)
