"""Remote backward without recompute: the saved tensors of a forward are sent to the rank of its backward.

If `replay_check.py` finds that the backward of a stage cannot be replayed, only the input is sent, with the reason, and
the forward is recomputed. The decision is stored for each form of input; later micro-batches must conform to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import MismatchError
from penstock.runtime.remote_backward.graph_fingerprint import NotComparable, fingerprint
from penstock.runtime.remote_backward.graph_replay import Replay
from penstock.runtime.remote_backward.replay_check import find_obstacle, saved_shapes
from penstock.runtime.remote_backward.saved_tensors import (
    NotTransferable,
    SavedTensor,
    TensorRef,
    collect_saved,
    describe_saved,
    rebuild_saved,
)
from penstock.runtime.stage import Graph, StageJob, TorchStage
from penstock.runtime.tensors import NOT_A_TENSOR, PackedPayload, PayloadMeta, pack, payload_from_meta, unpack

SENT = "saved tensors sent"
RECOMPUTED = "forward recomputed"
PLANNED = "as planned"
AS_PLANNED = f"{RECOMPUTED}: {PLANNED}"
KEPT = "saved tensors kept"
NOT_RUN = "not run yet"

DIFFERENT_HINT = (
    "The backward of a stage with a remote backward must depend on the shapes of its inputs alone. Plan with "
    "recomputation, or without a remote backward, for this stage."
)


@dataclass(frozen=True)
class TransferHeader:
    """Header of a message with saved tensors. The input comes first, unless every rank has it."""

    inputs: PayloadMeta | None
    refs: tuple[TensorRef, ...]


@dataclass(frozen=True)
class RecomputeHeader:
    """Header of a message with the input of a forward that must be recomputed."""

    reason: str


@dataclass(eq=False)
class _Decision:
    """How the backward for one form of input gets its tensors."""

    inputs: PayloadMeta
    reason: str
    """Why the forward must be recomputed; empty if its saved tensors are sent."""
    header: TransferHeader | None = None
    fingerprint: tuple[Any, ...] = ()


@dataclass(eq=False)
class SavedTensorTransfer:
    """The stages with a remote backward, on one rank."""

    _decisions: dict[tuple[Any, ...], list[_Decision]] = field(default_factory=dict)
    _replays: dict[tuple[Any, ...], list[tuple[TransferHeader, Replay]]] = field(default_factory=dict)
    mechanisms: dict[int, str] = field(default_factory=dict)
    """By stage: how its backward gets its tensors."""

    def reason(self, runner: TorchStage, inputs: PackedPayload, job: StageJob) -> str:
        """The reason why a forward must be recomputed for its backward; empty if its saved tensors can be sent."""
        decision = self._lookup(job, inputs.meta)
        if decision is None:
            reason = find_obstacle(runner, inputs, job)
            decision = _Decision(inputs.meta, reason)
            self._decisions.setdefault(job.key, []).append(decision)
            self._record(job.stage, reason)
        return decision.reason

    def run(
        self, runner: TorchStage, inputs: PackedPayload, job: StageJob, description: str
    ) -> tuple[PackedPayload, PackedPayload]:
        """Run a forward for a remote backward. `reason` must have returned an empty reason for it.

        Args:
            runner: The stage.
            inputs: The input of the forward.
            job: The forward.
            description: Describes the action in error messages.

        Returns:
            The output, and the message for the rank of the backward.

        Raises:
            MismatchError: The graph differs from that of an earlier forward for inputs of the same shapes.
        """
        decision = self._lookup(job, inputs.meta)
        assert decision is not None, "reason() decides first"
        saved, hooks = collect_saved(runner.buffers())
        out, graph = runner.run(inputs, job.step, job.rows, job.compute_loss, keep=True, defer=job.defer, hooks=hooks)
        sent = [] if job.stage == 0 else [SavedTensor(tensor, tensor._version, None) for tensor in inputs.tensors]
        try:
            refs, parts = describe_saved([*sent, *saved], runner.parameters, job.batch)
            graph_fingerprint = fingerprint(graph.outputs, runner.parameters)
        except (NotTransferable, NotComparable) as error:
            raise MismatchError(
                f"{description}: {error}, unlike in an earlier forward of the stage", hint=DIFFERENT_HINT
            ) from error
        finally:
            graph.release()
        header = TransferHeader(decision.inputs if sent else None, refs)
        if decision.header is None:
            decision.header, decision.fingerprint = header, graph_fingerprint
        elif decision.header != header or decision.fingerprint != graph_fingerprint:
            raise MismatchError(
                f"{description}: the autograd graph of the stage differs from an earlier one for inputs of the same "
                "shapes",
                hint=DIFFERENT_HINT,
            )
        return out, _transfer_message(decision.header, parts)

    def graph(
        self, runner: TorchStage, message: PackedPayload, job: StageJob, from_batch: PackedPayload | None
    ) -> Graph:
        """On the rank of the backward: the graph from a received message.

        Args:
            runner: The stage.
            message: The message from the rank of the forward.
            job: The forward.
            from_batch: The input, if the message does not contain it.

        Raises:
            MismatchError: The forward saves other tensors on this rank than on the sending one.
        """
        header = message.values[0]
        if isinstance(header, RecomputeHeader):
            self._record(job.stage, header.reason)
            sync_sums, received = _read_inputs(message)
            inputs = received if from_batch is None else from_batch
            return runner.recompute(inputs, job.step, job.rows, job.compute_loss, defer=job.defer, sync_sums=sync_sums)
        self._record(job.stage, "")
        tensors = rebuild_saved(header.refs, message.tensors, runner.parameters)
        count = 0 if header.inputs is None else len(header.inputs.tensors)
        replays = self._replays.setdefault(job.key, [])
        replay = next((item for known, item in replays if known == header), None)
        if replay is None:
            inputs = from_batch or payload_from_meta(header.inputs, tensors[:count])
            copies = inputs.with_tensors([tensor.clone() for tensor in inputs.tensors])
            replay = Replay(runner, copies, job)
            if replay.saved_shapes != saved_shapes(header.refs[count:]):
                raise MismatchError(
                    f"the forward of stage {job.stage} saves other tensors on this rank than on the rank that sent "
                    "its saved tensors",
                    hint="Use the same version of torch, the same device kind and the same model on all ranks.",
                )
            replays.append((header, replay))
        return replay.with_tensors(tensors[count:])

    def _lookup(self, job: StageJob, inputs: PayloadMeta) -> _Decision | None:
        return next((item for item in self._decisions.get(job.key, ()) if item.inputs == inputs), None)

    def _record(self, stage: int, reason: str) -> None:
        if reason or stage not in self.mechanisms:
            self.mechanisms[stage] = f"{RECOMPUTED}: {reason}" if reason else SENT


def make_recompute_message(
    inputs: PackedPayload | None, reason: str, sync_sums: Sequence[Tensor] = ()
) -> PackedPayload:
    """Make the message for a forward that must be recomputed.

    Args:
        inputs: The input of the forward; None if every rank has it.
        reason: Why the forward must be recomputed.
        sync_sums: The sums over replicas that the forward recorded.
    """
    num = len(sync_sums)
    header, placeholders = RecomputeHeader(reason), [0] * num
    if inputs is None:
        tree = _tree((0, placeholders, ()))
        return PackedPayload(tree, (NOT_A_TENSOR, *range(num)), (header,), tuple(sync_sums), (False,) * num)
    return PackedPayload(
        _tree((0, placeholders, unpack(inputs, inputs.tensors))),
        (NOT_A_TENSOR, *range(num), *(slot if slot == NOT_A_TENSOR else slot + num for slot in inputs.slots)),
        (header, *inputs.values),
        (*sync_sums, *inputs.tensors),
        (*(False,) * num, *inputs.needs_grad),
    )


def _read_inputs(message: PackedPayload) -> tuple[Sequence[Tensor], PackedPayload]:
    _, sync_sums, activations = unpack(message, message.tensors)
    packed, _ = pack(activations)
    num = len(sync_sums)
    return sync_sums, PackedPayload(
        packed.tree, packed.slots, packed.values, message.tensors[num:], message.needs_grad[num:]
    )


def _transfer_message(header: TransferHeader, parts: Sequence[Tensor]) -> PackedPayload:
    num = len(parts)
    tree = _tree((0, [0] * num))
    return PackedPayload(tree, (NOT_A_TENSOR, *range(num)), (header,), tuple(parts), (False,) * num)


def _tree(shape: Any) -> Any:
    return pytree.tree_structure(shape)
