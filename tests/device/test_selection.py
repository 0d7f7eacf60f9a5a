"""Which device a process uses."""

import pytest
import torch

from penstock.device import find_accelerator, is_accelerator, select_device
from penstock.errors import InputError
from tests.device.fake_accelerator import pretend_accelerator


def test_without_an_accelerator_the_cpu_is_selected() -> None:
    assert select_device() == select_device("auto") == select_device("cpu") == torch.device("cpu")


def test_the_local_rank_is_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    current = pretend_accelerator(monkeypatch, name="cuda", count=4)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert select_device("auto") == select_device("cuda") == torch.device("cuda", 2)
    assert select_device("cuda:3") == torch.device("cuda", 3)
    assert current == [2, 2, 3]


def test_a_process_that_sees_one_device_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerator(monkeypatch, name="cuda", count=1)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert select_device() == torch.device("cuda", 0)


def test_more_ranks_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerator(monkeypatch, name="cuda", count=2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setenv("RANK", "6")
    with pytest.raises(InputError, match="rank 6 needs device cuda:2, but this host has 2"):
        select_device()


@pytest.mark.parametrize(
    ("name", "text"),
    [("cuda", "torch finds no cuda device"), ("gpu", "'gpu' is not a device of torch"), ("", "is not a device")],
)
def test_a_device_that_does_not_exist_is_refused(name: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        select_device(name)


def test_the_error_names_the_accelerator_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerator(monkeypatch, name="xpu", count=2)
    with pytest.raises(InputError) as caught:
        select_device("cuda")
    assert "Use xpu or cpu" in caught.value.hint


def test_an_accelerator_without_a_backend_of_its_own_is_not_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerator(monkeypatch, name="mps", count=1)
    assert find_accelerator() is None
    assert select_device() == torch.device("cpu")


def test_cpu_and_meta_are_no_accelerators() -> None:
    found = [is_accelerator(torch.device(name)) for name in ("cpu", "meta", "cuda:1", "xpu")]
    assert found == [False, False, True, True]
