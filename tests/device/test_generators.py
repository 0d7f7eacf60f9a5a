"""Random generators of a device."""

import pytest
import torch

from penstock.device import default_generators, preserve_rng_states
from tests.device.fake_accelerator import pretend_accelerator


def test_the_cpu_has_one_generator() -> None:
    assert default_generators(torch.device("cpu")) == (torch.default_generator,)


def test_an_accelerator_adds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    current = pretend_accelerator(monkeypatch, name="cuda", count=2)
    one, other = default_generators(torch.device("cuda", 1))
    assert one is torch.default_generator
    assert other is default_generators(torch.device("cuda", 1))[1]
    assert other is not default_generators(torch.device("cuda"))[1]
    current.append(1)
    assert other is default_generators(torch.device("cuda"))[1]


def test_states_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_accelerator(monkeypatch, name="cuda", count=2)
    devices = [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")]
    generators = {item for device in devices for item in default_generators(device)}
    assert len(generators) == 3
    before = {item: item.get_state() for item in generators}
    with preserve_rng_states(devices):
        for item in generators:
            torch.rand(3, generator=item)
            assert not torch.equal(item.get_state(), before[item])
    assert all(torch.equal(item.get_state(), before[item]) for item in generators)
