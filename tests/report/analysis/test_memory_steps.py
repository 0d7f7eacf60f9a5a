"""The memory strip: by hand, and that it never hides a peak."""

import numpy as np
from hypothesis import given

from penstock.report.analysis.memory_steps import memory_strip
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.summary import device_uses
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, equal_case, reach_features
from tests.support.thoroughness import examples


def test_by_hand() -> None:
    # One byte saved by each forward, and let go by each backward; nothing is sent.
    timeline = evaluate_costs(equal_case([0], 2, "gpipe").costs).timeline
    strip = memory_strip(timeline)
    assert strip.during.tolist() == [1.0, 2.0, 2.0, 1.0, 0.0]
    assert strip.after.tolist() == [1.0, 2.0, 1.0, 0.0, 0.0]


@reaches(during=0.02, after=0.05, several_devices=0.05)
@examples(100)
@given(cases())
def test_no_peak_is_hidden(case: Case) -> None:
    timeline = evaluate_costs(case.costs).timeline
    strip = memory_strip(timeline)
    device = timeline.program.device_of[timeline.is_compute]
    for use in device_uses(timeline):
        mine = device == timeline.program.devices.index(use.device)
        during, after = strip.during[mine].max(), strip.after[mine].max()
        assert max(during, after) == use.peak_bytes
        reach("during" if during > after else "after", use.peak_bytes > 0)
    assert np.isfinite(strip.during).all()
    reach_features(case)
