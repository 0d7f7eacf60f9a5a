"""Parameter counts equal those of transformers, exactly."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.profile.analytic import analytic_profile
from penstock.profile.analytic.architectures import ARCHITECTURES
from penstock.profile.analytic.architectures.encoders.clip import ClipText, ClipVision
from penstock.profile.types import Profile
from tests.profile.analytic.transformers_reference.drawn_configs import DRAWN
from tests.profile.analytic.transformers_reference.reference import (
    block_counts,
    count,
    real_config,
    real_model,
)
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

ELEMENT_BYTES = 2
NOT_IN_TRANSFORMERS = {"bloom": {"seq_length"}, "t5": {"n_positions"}}
"""Keys of config.json files that the configuration class does not have. They affect no count."""


def profile_of(family: str, config: dict[str, Any]) -> Profile:
    sequence = None if ARCHITECTURES[family].TAKES_IMAGES else 8
    return analytic_profile({**config, "model_type": family}, kinds=["A100-80"], micro_batch_size=1, sequence=sequence)


def total(profile: Profile) -> int:
    tied = sum(tie.parameter_bytes * (len(tie.units) - 1) for tie in profile.ties)
    return (sum(unit.parameter_bytes for unit in profile.units) - tied) // ELEMENT_BYTES


def counts_by_block(profile: Profile) -> Counter[str]:
    counts: Counter[str] = Counter()
    for unit in profile.units:
        match = re.match(r"(?:\w+\.)?block\.\d+", unit.name)
        if match:
            counts[match[0]] += unit.parameter_bytes // ELEMENT_BYTES
    return counts


def normal(counts: Counter[str], family: str) -> Counter[str]:
    """Decoders without an encoder have one stack, whatever their modules are called."""
    if family in ("clip", "t5", "whisper"):
        # In CLIP both towers call their blocks "encoder".
        return counts
    return Counter({name.rpartition("block.")[2]: number for name, number in counts.items()})


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_defaults_are_those_of_transformers(family: str) -> None:
    profile = profile_of(family, {})
    model = real_model(family, {})
    assert total(profile) == count(model)
    defaults, real = ARCHITECTURES[family](), real_config(family, {})
    for key in ARCHITECTURES[family].__struct_fields__:
        if key in {"architectures", *NOT_IN_TRANSFORMERS.get(family, ())} or key.endswith(("_config", "_config_dict")):
            continue
        ours = getattr(defaults, key)
        if ours is None or key in ("sliding_window", "head_dim", "layer_types", "sliding_window_pattern"):
            continue  # None is resolved by transformers; the class resolves these from other keys
        assert getattr(real, key) == ours, key


def test_defaults_of_the_towers_of_clip() -> None:
    real = real_config("clip", {})
    for tower, ours in ((real.text_config, ClipText()), (real.vision_config, ClipVision())):
        for key in ours.__struct_fields__:
            assert getattr(tower, key) == getattr(ours, key), key


@pytest.mark.parametrize("family", ARCHITECTURES)
@reaches(tied=0.1, not_default_class=0.1)
@examples(25)
@given(data=st.data())
def test_drawn_configurations(family: str, data: st.DataObject) -> None:
    config = data.draw(DRAWN[family])
    classes = list(ARCHITECTURES[family].CLASSES)
    if data.draw(st.booleans()):
        config["architectures"] = [data.draw(st.sampled_from(classes))]
    model, profile = real_model(family, config), profile_of(family, config)
    # Families without ties or with one class reach these in all examples.
    reach("tied", bool(profile.ties) or family in ("vit", "clip"))
    reach("not_default_class", len(classes) == 1 or config.get("architectures", classes)[0] != classes[0])
    assert total(profile) == count(model)
    real = Counter({name.replace("vision.encoder.", "vision."): n for name, n in block_counts(model).items()})
    assert normal(counts_by_block(profile), family) == normal(real, family)
    counts = profile.parameter_counts
    if counts is not None:
        assert counts.total == total(profile)
        assert counts.active < counts.total
