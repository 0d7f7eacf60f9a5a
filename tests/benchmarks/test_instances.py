"""The converters of the benchmarks, on the published files."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from penstock.profile.load import load_profile, save_profile
from tests.support.paths import REPOSITORY

if TYPE_CHECKING:
    from penstock.profile.types import Profile


def benchmark_instances() -> ModuleType:
    spec = importlib.util.spec_from_file_location("instances", REPOSITORY / "benchmarks" / "instances.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instances_folder() -> Path:
    folder = Path(os.environ.get("PENSTOCK_INSTANCES") or REPOSITORY.parent / "shared" / "instances")
    if not folder.is_dir():
        pytest.skip(f"no published profiles in {folder}; PENSTOCK_INSTANCES names the folder")
    return folder


def test_all_published_profiles(tmp_path: Path) -> None:
    profiles: dict[str, Profile] = benchmark_instances().all_profiles(instances_folder())
    assert len(profiles) == 15
    assert profiles["hpgo/gnmt_16"].micro_batch_size == 64
    assert (profiles["mixed/vgg416"].num_units, profiles["mixed/vgg416"].micro_batch_size) == (417, 13)
    assert profiles["mixed/opt350"].kinds == ("A100-40", "V100-16", "RTX-3090", "RTX-2080", "Titan-RTX")
    for profile in profiles.values():
        save_profile(profile, tmp_path / "p.json")
        assert load_profile(str(tmp_path / "p.json")) == profile
    # gpt2_medium's last layer but one, the head: it keeps its input of 4 MiB a row and nothing else
    head = profiles["mixed/gpt2_medium"].units[26]
    assert (head.sizes[0].cut_bytes, head.sizes[0].saved_bytes) == (205852672, 4194304)
    # measured 0.0097 s forward and 0.0351 s backward with the forward in it
    assert head.times[0].weight_grad_s == pytest.approx((0.03510091843781993 - 0.009736916050314903) / 2)


def test_regions() -> None:
    links: dict[tuple[str, str], tuple[float, float]] = benchmark_instances().regions(instances_folder())
    assert len(links) == 90
    assert links["Ohio", "Oregon"] == links["Oregon", "Ohio"] == pytest.approx((0.049, 1.1e9 / 8))
