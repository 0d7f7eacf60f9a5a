"""Checks whether the backward of a stage can be replayed on another rank, before it is.

The check creates a graph from another input of the same shapes, with other random numbers, and runs its backward with
the tensors that the real input leads to. Every gradient must equal that of autograd to the bit.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.runtime.remote_backward.graph_fingerprint import NotComparable, fingerprint
from penstock.runtime.remote_backward.graph_replay import Replay
from penstock.runtime.remote_backward.saved_tensors import (
    NotTransferable,
    TensorRef,
    collect_saved,
    describe_saved,
    rebuild_saved,
)
from penstock.runtime.stage import Graph, StageJob, TorchStage, separate_grads
from penstock.runtime.tensors import PackedPayload


def find_obstacle(runner: TorchStage, inputs: PackedPayload, job: StageJob) -> str:
    """The reason why the forward must be recomputed for its backward; empty if it can be replayed.

    The stage is left unchanged.
    """
    try:
        with runner.replay_sync(()):
            return _try_replay(runner, inputs, job)
    except (NotTransferable, NotComparable) as error:
        return str(error)
    except Exception as error:
        # Layers may refuse the other input, or a second backward. Whatever they raise, they cannot be replayed.
        lines = str(error).splitlines() or [""]
        return f"a trial replay failed ({type(error).__name__}: {lines[0][:120]})"


def _try_replay(runner: TorchStage, inputs: PackedPayload, job: StageJob) -> str:
    other_inputs = inputs.with_tensors([_alter(tensor) for tensor in inputs.tensors])
    saved, hooks = collect_saved(runner.buffers())
    graph = runner.recompute(_copy(inputs), job.step, job.rows, job.compute_loss, defer=job.defer, hooks=hooks)
    expected_fingerprint = fingerprint(graph.outputs, runner.parameters)
    graph.release()
    description = describe_saved(saved, runner.parameters, job.batch)
    replay = Replay(runner, _copy(other_inputs), job._replace(step=job.step + 1))
    replay_fingerprint = fingerprint(replay.graph.outputs, runner.parameters)
    if expected_fingerprint != replay_fingerprint or saved_shapes(description.refs) != replay.saved_shapes:
        return "its backward depends on the values of its input"
    with runner.preserve_buffers():
        out, eager = runner.run(_copy(inputs), job.step, job.rows, job.compute_loss, keep=True, defer=job.defer)
    generator = torch.Generator().manual_seed(0)
    outputs = [tensor for tensor, need in zip(out.tensors, out.needs_grad, strict=True) if need]
    grads = eager.loss_grads or [torch.randn(item.shape, generator=generator).to(item) for item in outputs]
    expected = _gradients(runner, eager, grads)
    tensors = rebuild_saved(description.refs, [part.clone() for part in description.parts], runner.parameters)
    for _ in range(2):
        # Twice, because a backward must not consume anything.
        replayed = _gradients(runner, replay.with_tensors(tensors), grads)
        if len(replayed) != len(expected) or not all(map(_is_same, replayed, expected)):
            return "its gradients differ when replayed"
    return ""


def check_recompute(
    runner: TorchStage,
    inputs: PackedPayload,
    job: StageJob,
    out: PackedPayload,
    sync_sums: Sequence[Tensor],
    description: str,
) -> None:
    """Reject a forward that changes buffers and gives another output when it is recomputed for its backward.

    A forward that gives another output each time is accepted: some kernels are not deterministic, which has nothing to
    do with buffers.

    Args:
        runner: The stage.
        inputs: The input of the forward.
        job: The forward.
        out: Its output.
        sync_sums: The sums over replicas that it recorded.
        description: Describes the action in the error message.

    Raises:
        InputError: The output depends on buffers that the forward changes.
    """

    def recompute() -> PackedPayload:
        with runner.preserve_buffers(), runner.replay_sync(sync_sums):
            return runner.run(_copy(inputs), job.step, job.rows, job.compute_loss, keep=False, defer=False)[0]

    recomputed = recompute()
    is_same = all(map(_is_same, recomputed.tensors, out.tensors))
    if not is_same and all(map(_is_same, recomputed.tensors, recompute().tensors)):
        raise InputError(
            f"{description}: this forward must be recomputed for its backward, but it reads buffers that it changes, "
            "so its output would differ",
            hint="Plan without recomputation of this stage (--no-recomputation). If it is recomputed because its saved "
            "tensors cannot be sent, plan without a remote backward (--one-cut).",
        )


def saved_shapes(refs: Iterable[TensorRef]) -> list[tuple[tuple[int, ...], object]]:
    """Shape and type of each tensor, as in `Replay.saved_shapes`."""
    return [(ref.size, ref.dtype) for ref in refs]


def _copy(payload: PackedPayload) -> PackedPayload:
    return payload.with_tensors([tensor.clone() for tensor in payload.tensors])


def _alter(tensor: Tensor) -> Tensor:
    """Other numbers of the same kind: the same in reverse order, larger by an eighth."""
    altered = tensor.flip(tuple(range(tensor.dim())))
    altered = altered * 1.125 if tensor.is_floating_point() else altered
    return torch.empty_like(tensor).copy_(altered)


def _gradients(runner: TorchStage, graph: Graph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of all inputs and parameters."""
    with separate_grads(runner.trained.values()) as parameters:
        input_grads = list(runner.backward(graph, grads))
        runner.backward_weight(graph)
        return [*input_grads, *(parameter.grad for parameter in parameters)]


def _is_same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
