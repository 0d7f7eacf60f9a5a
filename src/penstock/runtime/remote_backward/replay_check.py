"""Whether a stage's backward can be replayed elsewhere from what its forward saves: tried out before it is done.

A graph is made from another input of the same shapes, with other random numbers, and gone back through with the tensors
that the real input leads to. Every gradient must come out as autograd has it, to the bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.runtime.remote_backward.graph_fingerprint import Unmarkable, marks
from penstock.runtime.remote_backward.graph_replay import Replay
from penstock.runtime.remote_backward.saved_tensors import Piece, Unshippable, collecting, put_together, take_apart
from penstock.runtime.stage import Graph, Job, TorchStage
from penstock.runtime.tensors import Packed


def why_not(runner: TorchStage, given: Packed, job: Job) -> str:
    """The reason why the forward must be run again for the backward, or nothing. Leaves everything as it was."""
    try:
        with runner.recalling(()):
            return _try_out(runner, given, job)
    except (Unshippable, Unmarkable) as error:
        return str(error)
    except Exception as error:
        # Blocks may refuse the other input, or to go back twice; whatever they raise, they cannot be replayed.
        told = str(error).splitlines() or [""]
        return f"it failed when tried out ({type(error).__name__}: {told[0][:120]})"


def _try_out(runner: TorchStage, given: Packed, job: Job) -> str:
    other = given.with_tensors([_another(tensor) for tensor in given.tensors])
    seen, hooks = collecting(runner.buffers())
    graph = runner.run_again(_copied(given), job.step, job.rows, job.finish, defer=job.defer, hooks=hooks)
    mine = marks(graph.outputs, runner.parameters)
    graph.let_go()
    pieces = take_apart(seen, runner.parameters, job.batch)
    replay = Replay(runner, _copied(other), job._replace(step=job.step + 1))
    theirs = marks(replay.graph.outputs, runner.parameters)
    if mine != theirs or saved_forms(pieces.pieces) != replay.saved_forms:
        return "its way back depends on what is in its input"
    with runner.buffers_kept():
        out, eager = runner.run(_copied(given), job.step, job.rows, job.finish, keep=True, defer=job.defer)
    numbers = torch.Generator().manual_seed(0)
    outputs = [tensor for tensor, need in zip(out.tensors, out.needs_grad, strict=True) if need]
    grads = eager.ones or [torch.randn(item.shape, generator=numbers).to(item) for item in outputs]
    wanted = _gradients(runner, eager, grads)
    tensors = put_together(pieces.pieces, [part.clone() for part in pieces.parts], runner.parameters)
    for _ in range(2):
        # Twice: going back must not use anything up.
        found = _gradients(runner, replay.with_tensors(tensors), grads)
        if len(found) != len(wanted) or not all(map(_same, found, wanted)):
            return "its gradients come out differently when replayed"
    return ""


def require_the_same_again(
    runner: TorchStage, given: Packed, job: Job, out: Packed, notes: Sequence[Tensor], told: str
) -> None:
    """Refuse a forward that has changed buffers, and gives something else when it runs once more for its backward.

    If it gives something else each time, that is not for the buffers: some kernels never repeat themselves to the bit.
    """

    def again() -> Packed:
        with runner.buffers_kept(), runner.recalling(notes):
            return runner.run(_copied(given), job.step, job.rows, job.finish, keep=False, defer=False)[0]

    found = again()
    is_same = all(map(_same, found.tensors, out.tensors))
    if not is_same and all(map(_same, found.tensors, again().tensors)):
        raise InputError(
            f"{told}: this forward must run again for its backward, but it reads buffers that it changes, and would "
            "give something else",
            hint="Plan without recomputing or moving this stage (--no-recomputation, --one-cut).",
        )


def saved_forms(pieces: Iterable[Piece]) -> list[tuple[tuple[int, ...], object]]:
    """Shape and type of each tensor, as `Replay` knows them."""
    return [(piece.size, piece.dtype) for piece in pieces]


def _copied(given: Packed) -> Packed:
    return given.with_tensors([tensor.clone() for tensor in given.tensors])


def _another(tensor: Tensor) -> Tensor:
    """Other numbers, of a kind that may be expected: the same backwards, and larger by an eighth."""
    turned = tensor.flip(tuple(range(tensor.dim())))
    turned = turned * 1.125 if tensor.is_floating_point() else turned
    return torch.empty_like(tensor).copy_(turned)


def _gradients(runner: TorchStage, graph: Graph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Of what came in, and of every parameter."""
    with _gradients_apart(runner.trained.values()) as parameters:
        found = list(runner.backward(graph, grads))
        runner.weights(graph)
        return [*found, *(parameter.grad for parameter in parameters)]


@contextmanager
def _gradients_apart(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    replicas = list(parameters)
    before = [parameter.grad for parameter in replicas]
    for parameter in replicas:
        parameter.grad = None
    try:
        yield replicas
    finally:
        for parameter, grad in zip(replicas, before, strict=True):
            parameter.grad = grad


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
