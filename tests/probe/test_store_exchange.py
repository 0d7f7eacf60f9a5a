"""The exchange of a probe: one answer for all ranks, and failures as text."""

import threading

import msgspec
import pytest
import torch.distributed as dist

from penstock.dist import Consensus, Failed
from penstock.errors import RunError
from penstock.probe import store_exchange
from penstock.probe.store_exchange import ReportedError, StoreExchange


def exchanges(timeout_s: float = 5.0) -> list[StoreExchange]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    ranks = [StoreExchange(store, rank, 3, timeout_s) for rank in range(3)]
    for exchange in ranks:
        exchange.names = ["here", "there", "elsewhere"]
    return ranks


def test_results_and_the_answer() -> None:
    first, *others = exchanges()
    for number in range(2):
        for rank, exchange in enumerate(others, 1):
            assert exchange.gather(msgspec.Raw(b"%d" % (rank + number)), "a step", 0.0) == []
        results = first.gather(msgspec.Raw(b"0"), "a step", 0.0)
        assert [bytes(item) for item in results if isinstance(item, msgspec.Raw)] == [
            b"0",
            b"%d" % (1 + number),
            b"%d" % (2 + number),
        ]
        answer = msgspec.Raw(b"[1, 2]")
        assert first.scatter([answer] * 3, "a step", 0.0) == answer
        assert [exchange.scatter(None, "a step", 0.0) for exchange in others] == [answer, answer]


def test_a_failure_is_reported_by_rank_0() -> None:
    first, second, third = exchanges()
    error = RunError("the link is down", hint="Check it.")
    second.gather(Failed(error), "a step", 0.0)
    # Rank 2 has not finished, and rank 0 does not wait for it.
    results = first.gather(msgspec.Raw(b"0"), "a step", 0.0)
    assert len(results) == 2
    failed = results[1]
    assert isinstance(failed, Failed)
    assert first.scatter(failed, "a step", 0.0) is failed
    third.gather(msgspec.Raw(b"2"), "a step", 0.0)
    for exchange in (second, third):
        answer = exchange.scatter(None, "a step", 0.0)
        assert isinstance(answer, Failed)
        assert isinstance(answer.error, ReportedError)
        assert (answer.error.what, answer.error.hint) == (error.what, error.hint)


def test_a_rank_that_does_not_respond_is_named() -> None:
    first, second, _ = exchanges(timeout_s=0.2)
    second.gather(msgspec.Raw(b"1"), "a step", 0.0)
    consensus = Consensus(first, 0, 3)
    with pytest.raises(RunError, match=r"waiting for elsewhere to finish a step: timed out after 0\.3 s"):
        consensus.decide("a step", lambda: msgspec.Raw(b"0"), lambda results: results)
    answer = second.scatter(None, "a step", 0.0)
    assert isinstance(answer, Failed)
    assert "elsewhere" in str(answer.error)


def leave(exchange: StoreExchange, left: threading.Event) -> None:
    exchange.leave()
    left.set()


def test_rank_0_waits_for_the_others_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = exchanges()
    left = threading.Event()
    monkeypatch.setattr(store_exchange, "LEAVE_S", 60.0)
    threading.Thread(target=leave, args=(first, left), daemon=True).start()
    second.leave()
    assert not left.wait(0.2)
    third.leave()
    assert left.wait(30)
    # A rank that has exited does not keep it.
    first, second, _ = exchanges()
    left.clear()
    monkeypatch.setattr(store_exchange, "LEAVE_S", 0.1)
    threading.Thread(target=leave, args=(first, left), daemon=True).start()
    second.leave()
    assert left.wait(30)
