"""Errors of torch.distributed, translated."""

from datetime import timedelta

import pytest
import torch

from penstock.dist.failures import translate_error, translate_errors, wait_for
from penstock.errors import PeerLost, RuntimeTimeout


def describe() -> str:
    return "rank 0, 0F1"


@pytest.mark.parametrize("text", ["Timed out waiting 1000ms for recv", "wait timeout after 5 s", "timed out", "Timeout"])
def test_timeouts(text: str) -> None:
    error = translate_error(RuntimeError(text), describe, 2.5)
    assert isinstance(error, RuntimeTimeout)
    assert error.what == "rank 0, 0F1: timed out after 2.5 s"
    assert translate_error(RuntimeError(text), describe).what == "rank 0, 0F1: timed out"


def test_other_errors_are_lost_connections() -> None:
    text = "[pair.cc:123] Connection closed by peer. This is detail\nwith a second line"
    error = translate_error(RuntimeError(text), describe, 2.5)
    assert isinstance(error, PeerLost)
    assert error.what == "rank 0, 0F1: the connection is lost ([pair.cc:123] Connection closed by peer)"
    assert len(translate_error(RuntimeError("x" * 1000), describe).what) < 300


class Work:
    def __init__(self, error: Exception | None = None) -> None:
        self.limits: list[timedelta] = []
        self._error = error

    def wait(self, limit: timedelta) -> None:
        self.limits.append(limit)
        if self._error:
            raise self._error


def test_a_wait_has_its_limit_and_keeps_the_cause() -> None:
    work = Work()
    wait_for(work, 2.5, describe)
    assert work.limits == [timedelta(seconds=2.5)]
    cause = RuntimeError("Timed out")
    with pytest.raises(RuntimeTimeout, match=r"timed out after 2\.5 s") as caught:
        wait_for(Work(cause), 2.5, describe)
    assert caught.value.__cause__ is cause
    with pytest.raises(ValueError, match="a fault of ours"):
        wait_for(Work(ValueError("a fault of ours")), 2.5, describe)


def test_a_context_translates_only_errors_of_torch() -> None:
    def fail(error: Exception) -> None:
        with translate_errors(describe, 3.0):
            raise error

    with pytest.raises(PeerLost, match="rank 0, 0F1: the connection is lost"):
        fail(RuntimeError("reset"))
    with pytest.raises(RuntimeTimeout, match="timed out after 3 s"):
        fail(RuntimeError("timeout"))
    with pytest.raises(ValueError, match="a fault of ours"):
        fail(ValueError("a fault of ours"))


def test_out_of_memory_is_no_lost_connection() -> None:
    error = torch.OutOfMemoryError("out of memory")
    with pytest.raises(torch.OutOfMemoryError), translate_errors(describe):
        raise error

    class Work:
        def wait(self, _: object) -> None:
            raise error

    with pytest.raises(torch.OutOfMemoryError):
        wait_for(Work(), 1.0, describe)
