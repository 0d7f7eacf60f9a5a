"""Backwards elsewhere without a second forward: what the forward saved goes to where the backward runs.

Where `checking.py` finds that a stage cannot be gone back through that way, only its input goes, with the reason, and
the forward runs again. What was found is kept for each form of input; later micro-batches must fit it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import MismatchError
from penstock.runtime.remote_backward.graph_fingerprint import Unmarkable, marks
from penstock.runtime.remote_backward.graph_replay import Replay
from penstock.runtime.remote_backward.replay_check import saved_forms, why_not
from penstock.runtime.remote_backward.saved_tensors import (
    Piece,
    Seen,
    Unshippable,
    collecting,
    put_together,
    take_apart,
)
from penstock.runtime.stage import Graph, Job, TorchStage
from penstock.runtime.tensors import VALUE, Form, Packed, from_form, pack, unpack

SHIPPED = "saved tensors shipped"
AGAIN = "forward run again"
PLANNED = "as planned"
AS_PLANNED = f"{AGAIN}: {PLANNED}"
KEPT = "saved tensors kept"
NOT_RUN = "not run yet"

DIFFERENT_HINT = (
    "The way back must follow from the shapes of the inputs alone. Plan with recompute for this stage, or without "
    "moving it."
)


@dataclass(frozen=True)
class Shipment:
    """What is in a message: the input, unless everybody has it, and behind it the saved tensors."""

    given: Form | None
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class InputOnly:
    """The forward must be run again, from the input that follows."""

    reason: str


@dataclass(eq=False)
class _Known:
    given: Form
    reason: str
    shipment: Shipment | None = None
    graph_marks: tuple[Any, ...] = ()


@dataclass(eq=False)
class Shipping:
    """One rank's knowledge of the stages that are moved."""

    _known: dict[tuple[Any, ...], list[_Known]] = field(default_factory=dict)
    _replays: dict[tuple[Any, ...], list[tuple[Shipment, Replay]]] = field(default_factory=dict)
    found: dict[int, str] = field(default_factory=dict)
    """How each moved stage's backward gets what it needs, in words."""

    def reason(self, runner: TorchStage, given: Packed, job: Job) -> str:
        """Why this forward must be run again for its backward; nothing if it can be shipped."""
        known = self._lookup(job, given.form)
        if known is None:
            found = why_not(runner, given, job)
            known = _Known(given.form, found)
            self._known.setdefault(job.key, []).append(known)
            self._note(job.stage, found)
        return known.reason

    def run(self, runner: TorchStage, given: Packed, job: Job, told: str) -> tuple[Packed, Packed]:
        """The forward, and the message with what its backward needs. Only where there is no reason against it."""
        known = self._lookup(job, given.form)
        assert known is not None, "asked for a reason before"
        seen, hooks = collecting(runner.buffers())
        out, graph = runner.run(given, job.step, job.rows, job.finish, keep=True, defer=job.defer, hooks=hooks)
        inputs = [] if job.stage == 0 else [Seen(tensor, tensor._version, None) for tensor in given.tensors]
        try:
            pieces, parts = take_apart([*inputs, *seen], runner.parameters, job.batch)
            graph_marks = marks(graph.outputs, runner.parameters)
        except (Unshippable, Unmarkable) as error:
            raise MismatchError(f"{told}: {error}, which it did not before", hint=DIFFERENT_HINT) from error
        finally:
            graph.let_go()
        shipment = Shipment(known.given if inputs else None, pieces)
        if known.shipment is None:
            known.shipment, known.graph_marks = shipment, graph_marks
        elif known.shipment != shipment or known.graph_marks != graph_marks:
            raise MismatchError(
                f"{told}: the stage's forward took another way than before for inputs of the same shapes",
                hint=DIFFERENT_HINT,
            )
        return out, _message(known.shipment, parts)

    def graph(self, runner: TorchStage, message: Packed, job: Job, from_batch: Packed | None) -> Graph:
        """On the other side: what the backward needs. `from_batch` is the input if it did not travel."""
        head = message.values[0]
        if isinstance(head, InputOnly):
            self._note(job.stage, head.reason)
            notes, given = _read_input(message)
            used = given if from_batch is None else from_batch
            return runner.run_again(used, job.step, job.rows, job.finish, defer=job.defer, notes=notes)
        self._note(job.stage, "")
        tensors = put_together(head.pieces, message.tensors, runner.parameters)
        count = 0 if head.given is None else len(head.given.tensors)
        known = self._replays.setdefault(job.key, [])
        replay = next((item for shipment, item in known if shipment == head), None)
        if replay is None:
            given = from_batch or from_form(head.given, tensors[:count])
            used = given.with_tensors([tensor.clone() for tensor in given.tensors])
            replay = Replay(runner, used, job)
            if replay.saved_forms != saved_forms(head.pieces[count:]):
                raise MismatchError(
                    f"the forward of stage {job.stage} does not save here what it saves on the other rank",
                    hint="Use the same version of torch, the same kind of device and the same model on all ranks.",
                )
            known.append((head, replay))
        return replay.with_tensors(tensors[count:])

    def _lookup(self, job: Job, given: Form) -> _Known | None:
        return next((item for item in self._known.get(job.key, ()) if item.given == given), None)

    def _note(self, stage: int, reason: str) -> None:
        if reason or stage not in self.found:
            self.found[stage] = f"{AGAIN}: {reason}" if reason else SHIPPED


def input_message(given: Packed | None, reason: str, notes: Sequence[Tensor] = ()) -> Packed:
    """The message for a forward that must be run again; without the input where everybody has it.

    `notes` are what the ranks that share the stage have added up in the forward.
    """
    num = len(notes)
    head, every = InputOnly(reason), [0] * num
    if given is None:
        return Packed(_tree((0, every, ())), (VALUE, *range(num)), (head,), tuple(notes), (False,) * num)
    return Packed(
        _tree((0, every, unpack(given, given.tensors))),
        (VALUE, *range(num), *(slot if slot == VALUE else slot + num for slot in given.slots)),
        (head, *given.values),
        (*notes, *given.tensors),
        (*(False,) * num, *given.needs_grad),
    )


def _read_input(message: Packed) -> tuple[Sequence[Tensor], Packed]:
    _, notes, carry = unpack(message, message.tensors)
    found, _ = pack(carry)
    num = len(notes)
    return notes, Packed(found.tree, found.slots, found.values, message.tensors[num:], message.needs_grad[num:])


def _message(head: Shipment, parts: Sequence[Tensor]) -> Packed:
    return Packed(
        _tree((0, [0] * len(parts))), (VALUE, *range(len(parts))), (head,), tuple(parts), (False,) * len(parts)
    )


def _tree(shape: Any) -> Any:
    return pytree.tree_structure(shape)
