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

import penstock
from penstock.export import import_plan
from penstock.plan import Plan
from tests.support.export_plans import EIGHT, plans
from tests.support.exports import export
from tests.support.reach import reach, reaches


def description(engine: str, files: Mapping[str, str], folder: Path, plan: Plan) -> str:
    """What the exported files state, as a user of the engine describes it."""
    rows = list(csv.DictReader(files["ranks.csv"].splitlines()))
    keys = f"dp={plan.stages[0].num_replicas} devices={','.join(row['device'] for row in rows)}"
    recomputed = [str(number) for number, stage in enumerate(plan.stages) if stage.recompute]
    if recomputed:
        keys += f" recompute={','.join(recomputed)}"
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
