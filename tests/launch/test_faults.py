"""Ranks that fail in every way and phase: the first cause is named, and nothing is left. All faults with --thorough."""

from pathlib import Path

import pytest

from benchmarks.trust.faults import all_faults
from benchmarks.trust.faulty_training import Fault, try_fault, write_plan

FEW = [Fault("kill", "action", 2, 0), Fault("exit 0", "making", 2, 1), Fault("stop", "start-up", 2, 0)]


@pytest.mark.parametrize("fault", FEW, ids=lambda fault: fault.name)
def test_the_first_cause_is_named(fault: Fault, tmp_path: Path) -> None:
    report = try_fault(fault, tmp_path, write_plan(tmp_path, fault.num_ranks))
    assert not report.complaints, f"{report.complaints}\n{report.text}"


def test_all_faults(tmp_path: Path, thorough: bool) -> None:
    if not thorough:
        pytest.skip("all faults: with --thorough")
    for number, fault in enumerate(all_faults()[:54]):
        folder = tmp_path / str(number)
        folder.mkdir()
        report = try_fault(fault, folder, write_plan(folder, fault.num_ranks))
        assert not report.complaints, f"{fault.name}: {report.complaints}\n{report.text}"


def test_the_faults_of_the_benchmark_vary() -> None:
    faults = all_faults()
    assert len(faults) == 200
    assert len({(fault.kind, fault.phase) for fault in faults}) == 54
    assert len({(fault.kind, fault.phase, fault.num_ranks) for fault in faults}) > 150
    assert all(0 <= fault.rank < fault.num_ranks <= 4 for fault in faults)
    assert {(fault.num_ranks, fault.rank) for fault in faults} == {(n, r) for n in (2, 3, 4) for r in range(n)}
