"""The compiled simulator equals the plain one, bit for bit, on everything that a program can hold."""

import numpy as np
from hypothesis import given

from penstock.program.actions import SEND_KINDS, Kind
from penstock.program.proof.proof import prove
from penstock.simulate.reference import simulate_plainly
from penstock.simulate.simulator import simulate
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@reaches(
    SEND_F=0.2,
    SEND_B=0.2,
    SEND_S=0.1,
    SEND_P=0.1,
    REDUCE_GRAD=0.05,
    REDUCE_TIE=0.03,
    R=0.1,
    W=0.1,
    shared_interface=0.05,
    overheads=0.05,
)
@examples(400)
@given(cases())
def test_equal_to_the_bit(case: Case) -> None:
    costs = case.costs
    lowered = case.lowered(costs)
    timeline = simulate(prove(lowered, costs))
    start, end = simulate_plainly(lowered, costs)
    assert np.array_equal(timeline.start_s, start)
    assert np.array_equal(timeline.end_s, end)
    for kind in (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S, Kind.SEND_P, Kind.REDUCE_GRAD, Kind.REDUCE_TIE, Kind.R, Kind.W):
        reach(kind.name, (lowered.kind == kind).any())
    host_of = {device.name: device.host for device in case.cluster.devices}
    limited = {host.name for host in case.cluster.hosts if host.interface_bandwidth is not None}
    for name in lowered.devices:
        ends = [{host_of[name], host_of[action.peer]} for action in lowered.actions(name) if action.kind in SEND_KINDS]
        reach("shared_interface", any(len(hosts) == 2 and hosts & limited for hosts in ends))
    reach("overheads", case.profile.overheads)
