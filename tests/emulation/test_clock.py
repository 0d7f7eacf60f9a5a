"""Sleeping to the minute, whatever happens around it."""

import time

from penstock.emulation.clock import DeviceClock

JOB_S = 0.03
MOST_LATE_S = 0.015
"""A busy machine wakes a process that late, now and then."""


def test_what_happens_between_jobs_is_not_the_devices_time() -> None:
    clock = DeviceClock(lambda: 0.0)
    began_s = time.perf_counter() + 0.02
    clock.begin(began_s)
    for _ in range(4):
        clock.work(JOB_S)
        time.sleep(JOB_S / 3)
    clock.work(JOB_S)
    assert 0 <= time.perf_counter() - began_s - 5 * JOB_S < MOST_LATE_S
    assert clock.lateness.num_jobs == 5
    assert clock.lateness.asleep_s == 5 * JOB_S
    assert clock.lateness.overrun_s == 0.0


def test_a_job_does_not_begin_before_what_it_waits_for() -> None:
    came_s = 0.0
    clock = DeviceClock(lambda: came_s)
    began_s = time.perf_counter()
    clock.begin(began_s)
    clock.work(JOB_S)
    time.sleep(2 * JOB_S)
    came_s = time.perf_counter()
    clock.work(JOB_S)
    assert 0 <= time.perf_counter() - came_s - JOB_S < MOST_LATE_S


def test_it_knows_that_it_is_late() -> None:
    clock = DeviceClock(lambda: 0.0)
    clock.begin(time.perf_counter())
    time.sleep(2 * JOB_S)
    clock.work(JOB_S)
    assert JOB_S * 0.99 < clock.lateness.overrun_s < JOB_S + MOST_LATE_S
