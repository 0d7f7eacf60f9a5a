"""How far the host runs ahead of its device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.device import RunAhead
from tests.device.fake_streams import DEVICE, pretend_streams
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples


@reaches(waits=0.1, free=0.1)
@examples(100)
@given(limit=st.integers(1, 5), done=st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_never_more_than_the_limit_is_queued(limit: int, done: list[int]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        streams = pretend_streams(monkeypatch)
        run_ahead = RunAhead(DEVICE, limit)
        for num in done:
            streams.num_queued += 1
            would_exceed = streams.num_queued - streams.num_done > limit
            before = streams.host_waits
            run_ahead.note()
            assert streams.num_queued - streams.num_done <= limit
            # A device that keeps up is never waited for.
            assert (streams.host_waits > before) == would_exceed
            reach("waits", would_exceed)
            reach("free", not would_exceed)
            streams.run(num)


def test_a_cpu_runs_its_work_at_once() -> None:
    run_ahead = RunAhead(torch.device("cpu"), 1)
    for _ in range(5):
        run_ahead.note()
