"""Plan -> export -> import -> plan: equal for everything that the engine can say."""

import csv
import json
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import penstock
from penstock.export import import_plan
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile
from tests.support.reach import reach, reaches

EIGHT = devices(8)
ROWS = 12


@st.composite
def plans(draw: st.DrawFn, engine: str) -> tuple[Plan, penstock.Profile]:
    """A plan that the engine can run: any cuts, replicas, order of devices, and map that it has."""
    num_blocks = draw(st.integers(2, 6))
    profile = replace(named_profile(block_names(num_blocks)), micro_batch_size=ROWS)
    replicas = draw(st.sampled_from([1, 2, 3]))
    ranks = draw(st.integers(1, min(8 // replicas, 3)))
    chunks = 1 if engine == "deepspeed" or ranks == 1 else draw(st.integers(1, 2))
    is_fine = engine == "deepspeed" or (engine == "megatron" and draw(st.booleans()))
    places = range(2, profile.num_units - 1) if is_fine else [1, *range(3, profile.num_units - 1, 2)]
    most = min(ranks * chunks - 1, len(places))
    ranks, chunks = (ranks, chunks) if most == ranks * chunks - 1 else (most + 1, 1)
    if ranks * replicas > 8:
        replicas = 1
    chosen = draw(
        st.lists(st.sampled_from(places), min_size=ranks * chunks - 1, max_size=ranks * chunks - 1, unique=True)
    )
    names = draw(st.permutations([device.name for device in EIGHT.devices]))
    groups = [list(names[rank * replicas : (rank + 1) * replicas]) for rank in range(ranks)]
    schedule = {"megatron": "interleaved", "deepspeed": "1f1b"}.get(engine) or draw(
        st.sampled_from(["gpipe", "1f1b", "interleaved", "zb_h1", "auto"])
    )
    plan = make_plan(
        profile,
        EIGHT,
        [0, *sorted(chosen), profile.num_units],
        groups * chunks,
        schedule=schedule,
        num_microbatches=ranks * draw(st.integers(1, 3)),
        rows=ROWS,
        recompute=range(ranks * chunks) if engine != "torch" and draw(st.booleans()) else (),
    )
    return plan, profile


def description(engine: str, files: Mapping[str, str], folder: Path, plan: Plan) -> str:
    """What the exported files state, as a user of the engine describes it."""
    rows = list(csv.DictReader(files["ranks.csv"].splitlines()))
    keys = f"dp={plan.stages[0].num_replicas} devices={','.join(row['device'] for row in rows)}"
    if plan.stages[0].recompute:
        keys += " recompute=all"
    if engine == "deepspeed":
        cuts = json.loads(files["partition.json"])["partitions"][-1]["cuts"]
        return f"deepspeed:{','.join(map(str, cuts))} {keys}"
    if engine == "megatron":
        words = shlex.split(files["megatron.sh"], comments=True)
        name = next(word for word in words if word.endswith(("-layout", "-layer-pattern")))
        ranks = words[words.index("--pipeline-model-parallel-size") + 1]
        return f"megatron:{words[words.index(name) + 1]} pp={ranks} {keys}"
    for name, text in files.items():
        (folder / name).write_text(text)
    return f"torch:{folder}"


@pytest.mark.parametrize("engine", ["megatron", "deepspeed", "torch"])
@reaches(replicas=0.2, chunks=0.1, stages=0.4)
@given(data=st.data())
def test_the_imported_plan_equals_the_exported_one(engine: str, data: st.DataObject) -> None:
    plan, profile = data.draw(plans(engine))
    reach("replicas", plan.stages[0].num_replicas > 1)
    reach("chunks", plan.num_stages > len(plan.devices) // plan.stages[0].num_replicas or engine == "deepspeed")
    reach("stages", plan.num_stages > 1)
    before = penstock.evaluate(plan, profile, EIGHT)
    with tempfile.TemporaryDirectory() as name:
        text = description(engine, export(plan, profile, EIGHT, engine).files, Path(name), plan)
        found = import_plan(text, profile, EIGHT, plan.num_microbatches)
    assert found.stages == plan.stages
    assert (found.num_microbatches, found.micro_batch_size) == (plan.num_microbatches, plan.micro_batch_size)
    after = penstock.evaluate(found, profile, EIGHT)
    assert after.program.same_actions(before.program)
    assert after.timeline.iteration_s == before.timeline.iteration_s
