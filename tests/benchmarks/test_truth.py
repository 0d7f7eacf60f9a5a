"""The benchmark of predictions for a GPU cluster, on a table of its own."""

from pathlib import Path

import pytest

from benchmarks.truth import main
from benchmarks.truth.factors import fit_factors
from benchmarks.truth.prediction import DATA_SHEET, Predictor
from benchmarks.truth.prediction_errors import errors_of, ranking_of
from benchmarks.truth.rows import Model, Row, read_all_reduce_tables, read_rows
from penstock.errors import FileError, InputError
from penstock.profile import MeasuredAllReduce

HEADER = (
    "num_gpus,global_batch_size,micro_batch_size,hidden_size,num_attention_heads,num_layers,sequence_length,"
    "tensor_parallel,data_parallel,pipeline_parallel,iteration_ms\n"
)
TABLES = tuple(MeasuredAllReduce(num_devices=count, num_bytes=(1e5, 1e9), seconds=(1e-4, 1e-2)) for count in (2, 4, 8))


def row(**changed: int) -> Row:
    values = {"global_batch_size": 8, "micro_batch_size": 1, "tensor": 1, "data": 1, "pipeline": 2, **changed}
    return Row(model=Model(256, 4, 4, 128), iteration_s=1.0, **values)


def folder(tmp_path: Path, lines: str) -> Path:
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "megatron_a100_one_node.csv").write_text(HEADER + lines)
    (tmp_path / "measured" / "allreduce_a100_one_node.csv").write_text("num_gpus,bytes,seconds\n2,1,1\n2,2,2\n")
    return tmp_path


def test_rows(tmp_path: Path) -> None:
    path = folder(tmp_path, "4,16,2,1024,16,12,1024,1,2,2,123.5\n")
    [found] = read_rows(path)
    assert (found.num_microbatches, found.iteration_s, found.model.layers) == (4, 0.1235, 12)
    assert read_all_reduce_tables(path)[0].num_devices == 2


@pytest.mark.parametrize("line", ["4,16,2,1024,16,12,1024,1,3,2,123.5\n", "4,16,2,1024,16,12,1024,1,2,2,soon\n"])
def test_bad_rows(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError):
        read_rows(folder(tmp_path, line))


def test_without_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["main.py", str(tmp_path)])
    with pytest.raises(FileError):
        read_rows(tmp_path)
    assert main.main() == 2
    assert "does not exist" in capsys.readouterr().err


def test_factors_of_another_world_are_found() -> None:
    world = DATA_SHEET._replace(launch_s=2 * DATA_SHEET.launch_s)
    rows = [row(pipeline=depth, micro_batch_size=size) for depth in (1, 2, 4) for size in (1, 2)]
    rows = [item._replace(iteration_s=Predictor(TABLES, world).seconds(item)) for item in rows]
    found = fit_factors(rows, TABLES, ("launch_s",), DATA_SHEET)
    # The prior holds the change back by a little.
    assert found.launch_s == pytest.approx(world.launch_s, rel=0.02)


def test_statistics() -> None:
    rows = [row()._replace(iteration_s=seconds) for seconds in (1.0, 2.0, 4.0)]
    found = errors_of(rows, [1.1, 2.0, 4.0])
    assert (found.num_rows, found.median, found.bias) == (3, 0.0, 0.0)
    perfect, reverse = ranking_of(rows, [1.0, 3.0, 9.0]), ranking_of(rows, [3.0, 2.0, 1.0])
    assert (perfect.tau, perfect.found, perfect.loss) == (1.0, 1.0, 0.0)
    assert (reverse.tau, reverse.found, reverse.loss) == (-1.0, 0.0, 3.0)
