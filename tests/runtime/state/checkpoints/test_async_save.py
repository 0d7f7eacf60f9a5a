"""A checkpoint that is written while training goes on has the state of the step at which it was started."""

from pathlib import Path

import pytest
import torch

from tests.support.runtime.async_saves import fail_to_write, save_beside_training, save_in_a_row
from tests.support.runtime.rank_pool import RankPool

torch.set_num_threads(1)


def test_the_state_is_that_of_the_start(rank_pool: RankPool, tmp_path: Path) -> None:
    for seen, restored, expected in rank_pool.run(2, save_beside_training, str(tmp_path / "a"), str(tmp_path / "b")):
        # Rank 1 has not written, so rank 0 does not finish either.
        assert seen == ["None, 0"] * 3 + ["step-00000001, None"]
        assert restored.keys() == expected.keys()
        for name, value in expected.items():
            if not value.is_meta:
                assert torch.equal(restored[name], value)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".lock", "step-00000001"]


@pytest.mark.parametrize(
    ("last", "newest"), [("close", "step-00000003"), ("load", "step-00000003"), ("save", "step-00000003-2")]
)
def test_every_later_call_finishes_it(rank_pool: RankPool, tmp_path: Path, last: str, newest: str) -> None:
    expected = ["step-00000001", "step-00000002", newest]
    assert rank_pool.run(2, save_in_a_row, str(tmp_path), last) == [expected] * 2
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_disk_that_is_full_is_reported_by_all_and_loses_nothing(
    rank_pool: RankPool, tmp_path: Path, limit: int
) -> None:
    expected = (
        f"FileError: {tmp_path}: rank 1 cannot write: File too large\n  Earlier checkpoints are intact. / "
        "['step-00000001'] / ['step-00000001', 'step-00000003']"
    )
    assert rank_pool.run(2, fail_to_write, str(tmp_path), limit) == [expected] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000001", "step-00000003"]
