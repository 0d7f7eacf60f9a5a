"""The rate of a device and the description of a rank, with a clock and a machine of our own."""

from pathlib import Path

import pytest
import torch

from penstock.probe import device_probe as module
from penstock.probe.device_probe import CPU_SIZE, KERNEL_S, describe_rank, measure_kernel

CPU = torch.device("cpu")


class Clock:
    """Time passes in matrix products only."""

    def __init__(self, *durations_s: float) -> None:
        self.now_s = 1000.0
        self.durations_s = [*durations_s]
        self.sizes: list[tuple[int, ...]] = []

    def perf_counter(self) -> float:
        return self.now_s

    def mm(self, one: torch.Tensor, other: torch.Tensor) -> None:
        assert one.shape == other.shape
        assert one.dtype == torch.float32
        self.sizes.append(tuple(one.shape))
        self.now_s += self.durations_s.pop(0)


def test_the_best_of_many_products_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(KERNEL_S / 2, KERNEL_S / 8, KERNEL_S / 4, KERNEL_S / 4, KERNEL_S / 100)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr("penstock.device.clock.perf_counter", clock.perf_counter)
    monkeypatch.setattr(torch, "mm", clock.mm)
    # It ends as soon as the time is over, so the last one is not run.
    assert measure_kernel(CPU) == pytest.approx(2 * CPU_SIZE**3 / (KERNEL_S / 8))
    assert clock.sizes == [(CPU_SIZE, CPU_SIZE)] * 4


def test_a_real_rate_is_plausible() -> None:
    assert 1e6 < measure_kernel(CPU) < 1e15


@pytest.mark.parametrize(
    ("meminfo", "expected"),
    [("MemTotal: 8 kB\nMemAvailable:    5 kB\nno colon\n", 5 * 1024), ("MemTotal: 8 kB\n", None)],
)
def test_free_memory(monkeypatch: pytest.MonkeyPatch, meminfo: str, expected: int | None) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_named: meminfo)
    assert describe_rank(0, CPU, "here").memory_bytes == expected


def fail(*_args: object, **_named: object) -> str:
    raise FileNotFoundError


def test_a_machine_without_these_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr("os.readlink", fail)
    info = describe_rank(2, CPU, None)
    assert info.memory_bytes is None
    assert info.host.endswith("\0")
    assert info.machine == info.host


def test_the_host_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_HOST", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    first, again = describe_rank(0, CPU, None), describe_rank(1, CPU, None)
    # The namespace tells emulated hosts of one machine apart.
    assert first.host == again.host
    assert first.host.startswith("box\0net:")
    assert (first.rank, again.rank) == (0, 1)
    monkeypatch.setenv("PENSTOCK_HOST", "named")
    assert describe_rank(0, CPU, None).host == "named"
    assert describe_rank(0, CPU, "given").host == "given"
    # Ranks of a machine share its memory, whatever their hosts are called.
    assert describe_rank(0, CPU, "given").machine == first.machine != ""
