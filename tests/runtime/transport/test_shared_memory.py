"""Tensors handed over in shared memory."""

import gc
import os

import pytest
import torch
from torch import Tensor

from penstock.runtime.tensors.packing import TensorMeta, dense_stride, flatten_dense
from penstock.runtime.transport import shared_memory
from penstock.runtime.transport.shared_memory import (
    NO_SLAB,
    IncomingSlabs,
    OutgoingSlabs,
    slab_offsets,
    uses_shared_memory,
)
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train_single_process
from tests.support.runtime.user_models import plan_of, train_through_memory

torch.set_num_threads(1)


def forms_of(tensors: list[Tensor]) -> list[TensorMeta]:
    return [TensorMeta(tuple(item.shape), dense_stride(item), item.dtype, needs_grad=False) for item in tensors]


def hand_over(outgoing: OutgoingSlabs, incoming: IncomingSlabs, tensors: list[Tensor]) -> tuple[int, list[Tensor]]:
    forms = forms_of(tensors)
    slab = outgoing.put([flatten_dense(item) for item in tensors], forms)
    return slab, incoming.take(slab, forms)


def test_what_arrives_is_what_was_sent() -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    sent = [torch.arange(7), image, torch.empty(0, 3), torch.tensor(2.5, dtype=torch.bfloat16), torch.ones(3, 1) > 0]
    _, found = hand_over(OutgoingSlabs(), IncomingSlabs(os.getpid()), sent)
    for one, other in zip(sent, found, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    assert found[1].stride() == image.stride()


def test_a_slab_is_used_again_when_nobody_has_its_tensors() -> None:
    outgoing, incoming = OutgoingSlabs(), IncomingSlabs(os.getpid())
    first, kept = hand_over(outgoing, incoming, [torch.ones(100), torch.zeros(100)])
    part = kept[1][:3]
    del kept
    second, _ = hand_over(outgoing, incoming, [torch.full((200,), 7.0)])
    assert second != first
    assert torch.equal(part, torch.zeros(3))
    del part
    gc.collect()
    third, found = hand_over(outgoing, incoming, [torch.full((200,), 9.0)])
    assert third in (first, second)
    assert torch.equal(found[0], torch.full((200,), 9.0))


def test_graphs_keep_what_they_need() -> None:
    outgoing, incoming = OutgoingSlabs(), IncomingSlabs(os.getpid())
    first, (x,) = hand_over(outgoing, incoming, [torch.full((5,), 3.0)])
    weight = torch.ones(5, requires_grad=True)
    out = (weight * x).sum()
    del x
    second, _ = hand_over(outgoing, incoming, [torch.full((5,), 8.0)])
    assert second != first
    out.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((5,), 3.0))


def test_without_memory_an_ordinary_message_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    tensors = [torch.ones(100)]
    assert OutgoingSlabs().put(tensors, forms_of(tensors)) == NO_SLAB


def test_tensors_begin_apart() -> None:
    starts, size = slab_offsets(forms_of([torch.ones(1), torch.ones(17), torch.ones(16)]))
    assert (starts, size) == ([64, 128, 256], 320)


def test_small_ones_go_by_message() -> None:
    assert not uses_shared_memory(forms_of([torch.ones(100)]))
    assert uses_shared_memory(forms_of([torch.ones(shared_memory.SHARED_MEMORY_MIN_BYTES // 4)]))


def test_memory_is_for_what_is_in_flight_not_for_all_micro_batches(rank_pool: RankPool) -> None:
    """Two stages of 1F1B have two micro-batches under way; of the many that are trained on none has its own memory."""
    plan = plan_of([0, 3, 7], [["d0"], ["d1"]], num_microbatches=24)
    for _, num_slabs in rank_pool.run(2, train_through_memory, Job("mlp", plan, None, None, num_rows=(48,)), True):
        assert 0 < num_slabs <= 4


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("kind", ["gpt", "resnet"])
def test_training_gives_the_same_numbers(rank_pool: RankPool, kind: str, is_there: bool) -> None:
    num_units = {"gpt": 5, "resnet": 9}[kind]
    plan = plan_of([0, 2, num_units], [["d0"], ["d1"]], schedule="zb_h1")
    job = Job(kind, plan, None, None)
    expected = train_single_process(job)
    ranks = rank_pool.run(2, train_through_memory, job, is_there)
    for trained, num_slabs in ranks:
        assert (num_slabs > 0) == is_there
        assert num_slabs < 3 * plan.num_microbatches
        for found, wanted in zip(trained.losses, expected.losses, strict=True):
            assert (found - wanted).abs() <= 1e-6 * wanted.abs()
        if kind == "resnet":
            assert all(torch.equal(item, expected.parameters[name]) for name, item in trained.parameters.items())
