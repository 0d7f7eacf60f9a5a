"""Pretrained weights: every rank reads its own tensors of real files, and writes them."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penstock
from penstock.errors import FileError, InputError, MismatchError
from tests.support.runtime.hugging_face import (
    adapted,
    loss_of,
    make,
    num_blocks,
    sample,
    save_twice,
    start_from,
    targets_of,
    train_adapters,
    train_alone,
    train_anywhere,
    write,
)
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
torch.set_num_threads(1)


def load(name: str, folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A model of transformers on the meta device, with weights of this folder."""
    with torch.device("meta"):
        model = make(name).to(dtype)
    return penstock.materialize(model, init=penstock.pretrained(folder, **options))


@pytest.mark.parametrize("name", ["llama", "llama_tied", "gpt2", "bert", "t5"])
def test_a_round_trip(rank_pool: RankPool, tmp_path: Path, name: str) -> None:
    model = write(name, tmp_path / "first")
    last = num_blocks(name)
    plan = plan_of([0, last // 2, last], [["d0"], ["d1"]])
    ranks = rank_pool.run(2, start_from, name, plan, str(tmp_path / "first"), 2, str(tmp_path / "second"))
    state = model.state_dict()
    buffers = dict(model.named_buffers())
    for held in ranks:
        assert held.values
        assert held.warned == []
        assert all(torch.equal(item, state[key]) for key, item in held.values.items())
        assert all(torch.equal(item, buffers[key]) for key, item in held.buffers.items())
        # Each tensor that it holds is read once, and no other one.
        assert held.read == {key: state[key].nbytes for key in held.read}
        assert {state[key].data_ptr() for key in held.read} == {state[key].data_ptr() for key in held.values}
    assert {name for held in ranks for name in held.values} == set(dict(model.named_parameters()))
    assert all(len(held.values) < len(list(model.parameters())) for held in ranks)
    losses = train_alone(name, model, 2)
    for held in ranks:
        assert all(torch.allclose(one, other, rtol=1e-4) for one, other in zip(held.losses, losses, strict=True))
    again = type(model).from_pretrained(tmp_path / "second")
    state = again.state_dict()
    for held in ranks:
        assert all(torch.equal(item, state[key]) for key, item in held.trained.items())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_sharded_files(rank_pool: RankPool, tmp_path: Path) -> None:
    model = write("llama", tmp_path / "sharded", max_shard_size="8KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    plan = plan_of([0, 1, 3, 5], [["d0"], ["d1"], ["d0"]])
    for held in rank_pool.run(2, start_from, "llama", plan, str(tmp_path / "sharded")):
        assert all(torch.equal(item, model.get_parameter(key)) for key, item in held.values.items())
        assert held.read.keys() == held.values.keys()


def test_the_index_and_a_single_file(tmp_path: Path) -> None:
    model = write("llama", tmp_path / "sharded", max_shard_size="8KB")
    model.save_pretrained(tmp_path / "single")
    for path in ("sharded/model.safetensors.index.json", "single/model.safetensors"):
        loaded = load("llama", tmp_path / path)
        assert all(torch.equal(item, loaded.state_dict()[key]) for key, item in model.state_dict().items())


def test_a_file_of_the_base_model(rank_pool: RankPool, tmp_path: Path) -> None:
    model = write("llama_base", tmp_path)
    first, last = rank_pool.run(2, start_from, "llama", plan_of([0, 2, 5], [["d0"], ["d1"]]), str(tmp_path))
    assert first.warned == []
    (text,) = last.warned
    assert "1 tensor of the model is not in the files, and has its initial values: lm_head.weight." in text
    for held in (first, last):
        known = {key: item for key, item in held.values.items() if key != "lm_head.weight"}
        assert all(torch.equal(item, model.get_parameter(key.removeprefix("model."))) for key, item in known.items())
    assert 0.01 < float(last.values["lm_head.weight"].std()) < 0.03  # the standard deviation of the configuration


def test_a_file_with_a_head_for_the_base_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = write("llama", tmp_path)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        loaded = load("llama_base", tmp_path)
    assert "lm_head.weight" in caplog.text
    assert all(torch.equal(item, model.get_parameter(f"model.{key}")) for key, item in loaded.named_parameters())


def test_another_head(tmp_path: Path) -> None:
    model = write("bert", tmp_path)
    with pytest.warns(UserWarning, match=r"initial values: bert.pooler.*classifier.weight") as caught:
        loaded = load("bert_classes", tmp_path, strict=False)
    assert len(caught) == 1
    state = model.state_dict()
    assert all(torch.equal(item, state[key]) for key, item in loaded.state_dict().items() if key in state)
    assert loaded.classifier.bias.tolist() == [0.0, 0.0]
    assert not any(item.isnan().any() for item in loaded.state_dict().values())


def test_a_tied_file_for_an_untied_model(tmp_path: Path) -> None:
    model = write("llama_tied", tmp_path)
    with pytest.warns(UserWarning, match=r"lm_head\.weight"):
        loaded = load("llama", tmp_path)
    assert torch.equal(loaded.model.embed_tokens.weight, model.model.embed_tokens.weight)
    assert not torch.equal(loaded.lm_head.weight, model.lm_head.weight)


def test_an_untied_file_for_a_tied_model(tmp_path: Path) -> None:
    write("llama", tmp_path)
    with pytest.raises(MismatchError, match="are one tensor in the model, but two different ones in the files"):
        load("llama_tied", tmp_path)
    model = write("llama_tied", tmp_path / "twice")
    safetensors_torch.save_file(
        {key: item.clone() for key, item in model.state_dict().items()}, tmp_path / "twice" / "model.safetensors"
    )
    loaded = load("llama_tied", tmp_path / "twice")
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)


def test_other_types(tmp_path: Path) -> None:
    model = write("llama", tmp_path)
    half = load("llama", tmp_path, torch.bfloat16)
    assert all(
        torch.equal(item, half.state_dict()[key].float()) for key, item in model.bfloat16().float().state_dict().items()
    )
    model.bfloat16().save_pretrained(tmp_path / "half")
    whole = load("llama", tmp_path / "half")
    assert all(item.dtype == torch.float32 for item in whole.parameters())
    assert all(torch.equal(item.float(), whole.state_dict()[key]) for key, item in model.state_dict().items())


def linear_files(folder: Path, **tensors: torch.Tensor) -> Path:
    path = folder / "linear.safetensors"
    safetensors_torch.save_file({key.replace("_", "."): item for key, item in tensors.items()}, path)
    return path


def meta_linear() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    path = linear_files(
        tmp_path,
        **{"0_weight": torch.zeros(3, 4), "0_bias": torch.zeros(3, dtype=torch.int64), "2_bias": torch.zeros(1)},
    )
    with pytest.raises(MismatchError) as caught:
        penstock.materialize(meta_linear(), init=penstock.pretrained(path))
    assert str(caught.value) == (
        f"{path}: the weights do not fit the model. 2 have another shape or type: 0.weight (F32 (3, 4) in the files, "
        "torch.float32 (3, 2) in the model), 0.bias (I64 (3,) in the files, torch.float32 (3,) in the model); "
        "5 are in the model, but not in the files: 1.weight, 1.bias, 1.running_mean, 1.running_var, "
        "1.num_batches_tracked; 1 are in the files, but not in the model: 2.bias"
    )
    path = linear_files(tmp_path, **{"0_weight": torch.ones(3, 2), "2_bias": torch.zeros(1)})
    with pytest.raises(MismatchError, match=r"strict=False of penstock\.pretrained"):
        penstock.materialize(meta_linear(), init=penstock.pretrained(path))
    with pytest.warns(UserWarning, match="6 tensors of the model"):
        model = penstock.materialize(meta_linear(), init=penstock.pretrained(path, strict=False))
    assert model.state_dict()["0.weight"].tolist() == [[1, 1]] * 3
    assert model.state_dict()["1.running_var"].tolist() == [1, 1, 1]


def test_weights_of_another_model(tmp_path: Path) -> None:
    path = linear_files(tmp_path, other=torch.ones(3, 2))
    with pytest.raises(MismatchError, match="no weights fit the model"):
        penstock.materialize(meta_linear(), init=penstock.pretrained(path, strict=False))


def test_names_can_be_converted(tmp_path: Path) -> None:
    path = linear_files(tmp_path, first_weight=torch.ones(3, 2), first_bias=torch.ones(3))
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 3))
    penstock.materialize(model, init=penstock.pretrained(path, rename=lambda name: name.replace("0.", "first.")))
    assert all((item == 1).all() for item in model.parameters())


def test_a_model_on_a_real_device_is_filled_too(rank_pool: RankPool, tmp_path: Path) -> None:
    path = linear_files(tmp_path, **{"0_weight": torch.ones(3, 2), "0_bias": torch.full((3,), 2.0)})
    model = nn.Sequential(nn.Linear(2, 3))
    penstock.materialize(model, init=penstock.pretrained(path))
    assert model.state_dict()["0.bias"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "no such file or folder"),
        ("empty", "has neither model.safetensors nor model.safetensors.index.json"),
        ("pickled", "which is pickled"),
        ("pickled/pytorch_model.bin", "the file is pickled"),
        ("broken.safetensors", "not a valid safetensors file"),
        ("index.json", "not an index"),
        ("outside.json", "which is not in its folder"),
        ("lacks.json", "which lacks it"),
        ("gone.json", "no such file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "broken.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "index.json").write_text("[]")
    linear_files(tmp_path, a=torch.ones(1))
    for kind, file in (("outside", "../x.safetensors"), ("lacks", "linear.safetensors"), ("gone", "gone.safetensors")):
        (tmp_path / f"{kind}.json").write_text(json.dumps({"weight_map": {"w": file}}))
    with pytest.raises(InputError, match=message) as caught:
        penstock.materialize(meta_linear(), init=penstock.pretrained(tmp_path / name))
    assert caught.value.hint or isinstance(caught.value, FileError)


def test_an_initialization_that_a_rank_would_miss_is_refused() -> None:
    # GPT-2 scales c_proj in _init_weights of the module around it.
    with torch.device("meta"):
        model = make("gpt2")
    with pytest.raises(InputError, match=r"_init_weights of GPT2Attention .* of a module inside it"):
        penstock.materialize(model)


def test_a_model_of_transformers_from_scratch() -> None:
    with torch.device("meta"):
        model = make("llama", initializer_range=0.5)
    penstock.materialize(model)
    real = make("llama", initializer_range=0.5)
    for name, item in model.named_parameters():
        other = real.get_parameter(name)
        assert torch.allclose(item.std(), other.std(), rtol=0.2)
    assert all(map(torch.equal, model.buffers(), real.buffers()))


@pytest.mark.parametrize("backward", [None, [["d1"], ["d0"]]])
def test_weights_are_written_by_the_rank_that_trained_them(
    rank_pool: RankPool, tmp_path: Path, backward: list[list[str]] | None
) -> None:
    plan = plan_of([0, 3, 7], [["d0"], ["d1"]], backward=backward)
    ranks = rank_pool.run(2, train_anywhere, plan, str(tmp_path / "out"))
    stored = penstock.materialize(ranks[0].empty(), init=penstock.pretrained(tmp_path / "out")).state_dict()
    assert {key for rank in ranks for key in rank.values} == stored.keys()
    for rank in ranks:
        assert all(torch.equal(item, stored[key]) for key, item in rank.values.items())


def test_replicas_write_each_tensor_once(rank_pool: RankPool, tmp_path: Path) -> None:
    plan = plan_of([0, 3, 7], [["d0", "d1"], ["d2", "d0", "d1"]])
    ranks = rank_pool.run(3, train_anywhere, plan, str(tmp_path / "out"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == dict(ranks[0].empty().named_parameters()).keys()
    stored = penstock.materialize(ranks[0].empty(), init=penstock.pretrained(tmp_path / "out")).state_dict()
    for rank in ranks:
        assert all(torch.equal(item, stored[key]) for key, item in rank.values.items())


def test_a_folder_with_contents_is_kept(rank_pool: RankPool, tmp_path: Path) -> None:
    errors = rank_pool.run(2, save_twice, plan_of([0, 3, 7], [["d0"], ["d1"]]), str(tmp_path / "out"))
    assert all("the folder exists, and is not empty" in error for error in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_adapters_of_peft(rank_pool: RankPool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    write("llama", tmp_path / "base")
    alone = adapted("llama")
    penstock.materialize(alone, init=penstock.pretrained(tmp_path / "base"))
    trained = {name: item for name, item in alone.named_parameters() if item.requires_grad}
    optimizer = torch.optim.SGD(trained.values(), lr=0.5)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(alone(**sample("llama", step)), targets_of("llama", step))
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    plan = plan_of([0, 2, num_blocks("llama")], [["d0"], ["d1"]])
    ranks = rank_pool.run(2, train_adapters, "llama", plan, str(tmp_path / "base"), str(tmp_path / "out"))
    assert {key for _, values, _ in ranks for key in values} == trained.keys()
    for found, values, warned in ranks:
        assert all(torch.allclose(one, other, rtol=1e-4) for one, other in zip(found, losses, strict=True))
        assert all(torch.allclose(item, trained[key], atol=1e-5) for key, item in values.items())
        assert warned == []
    load_file = pytest.importorskip("safetensors.torch").load_file
    alone.save_pretrained(tmp_path / "alone", save_embedding_layers=False)
    written, expected = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("out", "alone"))
    assert {key: item.shape for key, item in written.items()} == {key: item.shape for key, item in expected.items()}
    base = make("llama")
    penstock.materialize(base, init=penstock.pretrained(tmp_path / "base"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads attributes that transformers deprecates
        loaded = dict(peft.PeftModel.from_pretrained(base, tmp_path / "out", is_trainable=True).named_parameters())
    for _, values, _ in ranks:
        assert all(torch.equal(loaded[key], item) for key, item in values.items())


def test_adapters_of_peft_on_the_meta_device_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    write("llama", tmp_path)
    with torch.device("meta"):
        model = adapted("llama")
    with pytest.raises(InputError, match=r"of peft fills .*lora_A"):
        penstock.materialize(model, init=penstock.pretrained(tmp_path))
