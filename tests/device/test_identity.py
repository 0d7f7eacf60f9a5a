"""The kind of a device."""

import pytest
import torch

from penstock.device import device_kind_of
from tests.device.fake_accelerator import pretend_accelerator


def test_a_cpu_is_named_after_its_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert device_kind_of(torch.device("cpu")) == "cpu-1-thread"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("driver", "kind"),
    [("NVIDIA A100-SXM4-40GB", "A100-40"), ("Tesla T4", "T4"), ("AMD Instinct MI50", "AMD-Instinct-MI50")],
)
def test_an_accelerator_is_named_after_its_data_sheet(monkeypatch: pytest.MonkeyPatch, driver: str, kind: str) -> None:
    pretend_accelerator(monkeypatch, name="cuda", count=2, kind=driver)
    assert device_kind_of(torch.device("cuda", 1)) == kind
