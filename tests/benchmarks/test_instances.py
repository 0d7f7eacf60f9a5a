"""The converters of the benchmarks, on the published files."""

import os
from pathlib import Path

import pytest

from benchmarks.instances import all_profiles, regions
from penstock.profile.load import load_profile, save_profile
from tests.support.paths import REPOSITORY


def instances_folder() -> Path:
    folder = Path(os.environ.get("PENSTOCK_INSTANCES") or REPOSITORY.parent / "shared" / "instances")
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; PENSTOCK_INSTANCES is the folder of published profiles")
    return folder


def test_all_published_profiles(tmp_path: Path) -> None:
    profiles = all_profiles(instances_folder())
    assert len(profiles) == 15
    assert profiles["hpgo/gnmt_16"].micro_batch_size == 64
    assert (profiles["mixed/vgg416"].num_units, profiles["mixed/vgg416"].micro_batch_size) == (417, 13)
    assert profiles["mixed/opt350"].kinds == ("A100-40", "V100-16", "RTX-3090", "RTX-2080", "Titan-RTX")
    for profile in profiles.values():
        save_profile(profile, tmp_path / "p.json")
        assert load_profile(str(tmp_path / "p.json")) == profile
    # The head of gpt2_medium, its last layer but one, saves its input of 4 MiB per row and nothing else.
    head = profiles["mixed/gpt2_medium"].units[26]
    assert (head.sizes[0].cut_bytes, head.sizes[0].saved_bytes) == (205852672, 4194304)
    # The measurement is 0.0097 s for the forward and 0.0351 s for the backward with a forward in it.
    assert head.times[0].weight_grad_s == pytest.approx((0.03510091843781993 - 0.009736916050314903) / 2)


def test_regions() -> None:
    links = regions(instances_folder())
    assert len(links) == 90
    assert links["Ohio", "Oregon"] == links["Oregon", "Ohio"] == pytest.approx((0.049, 1.1e9 / 8))
