"""A run that loses a rank, uses its device again, and has the losses of a run that changes plans without a loss."""

from pathlib import Path

from penstock.cli.console import Console
from penstock.dist.run_dir import MEMORY
from penstock.launch import ElasticOptions, PlanChange, TrainOptions, TrainResult, train_elastic
from penstock.simulate import evaluate_costs
from tests.support.small_training import IS_RANK_1, write_problem, write_script

FAULT = f"""mark = __file__ + ".mark"
        if step == 4 and {IS_RANK_1} and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("WORLD_SIZE") == "1":
            time.sleep(0.1)  # until the device is back"""


def _train(path: Path, elastic: ElasticOptions, *changes: PlanChange, steps: int) -> TrainResult:
    options, bundle = TrainOptions(str(path / "script.py"), str(path / "plan.json"), steps=steps, threads=1).open()
    console, predicted = Console(quiet=True), evaluate_costs(bundle.costs)
    return train_elastic(console, options, elastic, predicted, bundle, changes=changes)


def test_a_device_is_lost_and_used_again(tmp_path: Path) -> None:
    write_problem(tmp_path)
    write_script(tmp_path / "script.py", FAULT)
    before = set(MEMORY.glob("penstock-elastic-*"))
    disturbed = _train(tmp_path, ElasticOptions(True, return_after=0.1), steps=150)
    assert disturbed.failure is None
    assert [step.step for step in disturbed.steps] == list(range(150))
    lost, back = disturbed.changes
    assert (lost.step, lost.lost, lost.num_lost_steps) == (4, {"d1"}, 0)
    assert "rank 1 was killed by SIGKILL" in lost.why
    assert (back.lost, back.num_lost_steps) == (frozenset(), 0)
    assert 4 < back.step < 150
    # The mark is there, so nothing is lost now.
    reference = _train(tmp_path, ElasticOptions(True), *disturbed.changes, steps=150)
    assert [change.step for change in reference.changes] == [4, back.step]
    assert [step.loss for step in reference.steps] == [step.loss for step in disturbed.steps]
    (tmp_path / "script.py.mark").unlink()
    ended = _train(tmp_path, ElasticOptions(True, min_devices=2), steps=6)
    assert ended.failure is not None
    assert "rank 1 was killed by SIGKILL at step 4" in ended.failure.what
    assert "1 device remains; --min-devices is 2." in ended.failure.hint
    assert set(MEMORY.glob("penstock-elastic-*")) <= before
