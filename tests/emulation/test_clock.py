"""Sleeping to the minute, whatever happens around it; by a clock of our own, as real ones are late on busy machines."""

import pytest

from penstock.emulation import clock as module
from penstock.emulation.clock import DeviceClock

JOB_S = 0.5
LATE_S = 0.125


class Time:
    """Time that passes when somebody sleeps, and `late_s` longer than asked."""

    def __init__(self) -> None:
        self.now_s = 64.0
        self.late_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds + self.late_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(module, "time", found)
    return found


def test_what_happens_between_jobs_is_not_the_devices_time(time: Time) -> None:
    clock = DeviceClock(lambda: 0.0)
    began_s = time.now_s + 2
    clock.begin(began_s)
    for _ in range(4):
        clock.work(JOB_S)
        time.sleep(JOB_S / 4)
    clock.work(JOB_S)
    assert time.now_s == began_s + 5 * JOB_S
    assert clock.lateness.num_jobs == 5
    assert clock.lateness.asleep_s == 5 * JOB_S
    assert clock.lateness.overrun_s == clock.lateness.woken_s == 0.0


def test_a_job_does_not_begin_before_what_it_waits_for(time: Time) -> None:
    came_s = 0.0
    clock = DeviceClock(lambda: came_s)
    clock.begin(time.now_s)
    clock.work(JOB_S)
    time.sleep(2 * JOB_S)
    came_s = time.now_s
    clock.work(JOB_S)
    assert time.now_s == came_s + JOB_S


def test_late_wake_ups_do_not_add_up(time: Time) -> None:
    clock = DeviceClock(lambda: 0.0)
    began_s = time.now_s
    clock.begin(began_s)
    time.late_s = LATE_S
    for _ in range(4):
        clock.work(JOB_S)
    assert time.now_s == began_s + 4 * JOB_S + LATE_S
    assert clock.lateness.woken_s == 4 * LATE_S


def test_jobs_follow_each_other_in_the_devices_time(time: Time) -> None:
    clock = DeviceClock(lambda: 0.0)
    began_s = time.now_s
    clock.begin(began_s)
    for number in range(3):
        time.sleep(JOB_S / 4)  # what the runtime takes is not missing from the job
        clock.work(JOB_S)
        assert clock.take_span(time.now_s - 3 * JOB_S / 4) == (began_s + number * JOB_S, began_s + (number + 1) * JOB_S)
    assert clock.take_span(0.0) is None


def test_spans_of_late_jobs_do_not_overlap(time: Time) -> None:
    clock = DeviceClock(lambda: 0.0)
    began_s = time.now_s
    clock.begin(began_s)
    time.late_s = LATE_S
    clock.work(JOB_S)
    assert clock.take_span(began_s) == (began_s, began_s + JOB_S + LATE_S)
    # Two works of one job are one span.
    clock.work(JOB_S)
    clock.work(JOB_S)
    assert clock.take_span(began_s) == (began_s + JOB_S + LATE_S, began_s + 3 * JOB_S + LATE_S)


def test_a_job_that_waited_begins_when_all_is_there(time: Time) -> None:
    came_s = 0.0
    clock = DeviceClock(lambda: came_s)
    clock.begin(time.now_s)
    time.sleep(2 * JOB_S)
    came_s = time.now_s
    time.sleep(LATE_S)
    ready_s = time.now_s
    clock.work(JOB_S)
    assert clock.take_span(ready_s) == (ready_s, came_s + JOB_S)


def test_it_knows_that_it_is_late(time: Time) -> None:
    clock = DeviceClock(lambda: 0.0)
    clock.begin(time.now_s)
    time.sleep(3 * JOB_S)
    clock.work(JOB_S)
    assert clock.lateness.overrun_s == 2 * JOB_S
