"""Plans for what remains after a loss are plans for the whole cluster that leave the lost devices idle."""

import pytest

from penstock.cluster import load_cluster
from penstock.errors import InputError
from penstock.planners.api import plan
from penstock.planners.studies import plan_without, single_losses
from penstock.profile import load_profile


def test_every_single_loss_has_a_proved_plan_on_what_remains() -> None:
    profile = load_profile("gpt2", kinds=["T4"])
    cluster = load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s")
    original = plan(profile, cluster, 4, planner="dapple")
    losses = single_losses(cluster)
    assert [(loss.name, loss.is_host) for loss in losses[3:]] == [("h1.d1", False), ("h0", True), ("h1", True)]
    for loss in (losses[1], losses[4]):
        found = plan_without(original, profile, cluster, loss.devices, work=5)
        assert not loss.devices & set(found.costs.plan.devices)
        assert found.costs.plan.cluster == original.cluster
        assert found.costs.plan.num_microbatches == 4
        assert found.costs.plan.order is not None
        assert found.proof.peak_bytes[cluster.index["h1.d1"]] > 0
    assert [loss.name for loss in single_losses(cluster, ["h0.d0", "h0.d1", "h1.d0"])] == []
    with pytest.raises(InputError, match="no device remains"):
        plan_without(original, profile, cluster, cluster.index.keys())
    with pytest.raises(InputError, match="no device 'h9'"):
        plan_without(original, profile, cluster, ["h9"])
