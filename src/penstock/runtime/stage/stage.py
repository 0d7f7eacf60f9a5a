"""The actions of one stage on torch: forward, recompute, input gradient, weight gradient.

The forward is ordinary eager autograd. Input tensors enter the graph as outputs of an autograd function, not as leaves,
so that layers may change them in place. The same function captures the gradients of the inputs. Of the output only the
gradient edges are kept, so its memory can be freed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward, get_gradient_edge, saved_tensors_hooks

from penstock.errors import ModelLocation
from penstock.model import Activations, Block
from penstock.runtime.health import check_batch, check_loss, check_output, describe_rows
from penstock.runtime.stage.graph import Graph, attach_inputs
from penstock.runtime.stage.instrumentation import NULL_CONTEXT, EnterLayer, Instrumentation
from penstock.runtime.stage.replica_sync import ReplicaSync
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors import PackedPayload, Rows, pack, slice_rows, unpack

ComputeLoss = Callable[[Activations], Activations]
"""Computes the loss from the output of the last layer."""


class TorchStage:
    """The layers of one stage on this device.

    Args:
        blocks: The blocks (layers) of the stage.
        first_unit: Number of the first layer in the model.
        model: The whole model.
        seed: Seed of the random numbers.
        is_split: Whether the stage has several replicas.
        device: Device of the stage.
        check_finite: Whether to check the output of every layer for NaN and infinity.
        replica_sync: Communication with the other replicas inside an action, if the stage has any.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        first_unit: int,
        model: nn.Module,
        *,
        seed: int,
        is_split: bool,
        device: torch.device,
        check_finite: bool = False,
        replica_sync: ReplicaSync | None = None,
    ) -> None:
        self.replica_sync = replica_sync
        self.blocks = tuple(blocks)
        self._check_finite = check_finite
        self._first_unit = first_unit
        self._device = device
        named = {name: parameter for block in blocks for name, parameter in block.parameters.items()}
        self.parameters = named
        self.trained = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        self._not_deferred: list[Tensor] = list(self.trained.values())
        """Parameters whose gradients autograd itself computed in the last backward."""
        self._instrumentation = Instrumentation(
            model, self.trained.values(), seed=seed, is_split=is_split, device=device, replica_sync=replica_sync
        )
        self._inputs: Activations = None
        self._given: Activations = None
        self._needs_inputs = any(block.needs_inputs for block in blocks)
        held = {id(buffer) for block in blocks for buffer in block.buffers.values()}
        self._buffers = [
            (module, name)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and id(buffer) in held
        ]

    def begin(self, inputs: Activations = None) -> None:
        """Start an iteration: read which modules are in training mode.

        Args:
            inputs: The model's inputs of the whole batch. Stages compute masks and the like from them.
        """
        self._inputs = inputs
        self.read_modes()

    def read_modes(self) -> None:
        """Read which modules are in training mode."""
        self._instrumentation.begin_iteration()

    def model_inputs(self, rows: Rows) -> Activations:
        """Return the model's inputs for some rows of the batch; None if no layer uses them."""
        return slice_rows(self._inputs, rows, self._device) if self._needs_inputs else None

    @contextmanager
    def given(self, inputs: Activations) -> Iterator[None]:
        """Use these inputs of the model for all forwards within the context. None: those of the batch."""
        before, self._given = self._given, inputs
        try:
            yield
        finally:
            self._given = before

    def reseed(self, seed: int) -> None:
        """Set the seed of the random numbers."""
        self._instrumentation.seed = seed

    def replay_sync(self, sync_sums: Sequence[Tensor]) -> AbstractContextManager[None]:
        """Context of a recompute: sums over replicas are those of the first forward.

        Without `sync_sums` the stage behaves as if another replica had the same rows.
        """
        if self.replica_sync is None:
            return nullcontext()
        return self.replica_sync.replay(sync_sums) if sync_sums else self.replica_sync.isolate()

    def buffers(self) -> list[Tensor]:
        """The current buffers."""
        buffers = (module._buffers[name] for module, name in self._buffers)
        return [buffer for buffer in buffers if buffer is not None]

    def buffer_versions(self) -> list[tuple[int, int]]:
        """A value that changes whenever a buffer changes."""
        return [(id(buffer), buffer._version) for buffer in self.buffers()]

    def run(
        self,
        inputs: PackedPayload,
        step: int,
        rows: Rows,
        compute_loss: ComputeLoss | None,
        *,
        keep: bool,
        defer: bool,
        hooks: saved_tensors_hooks | None = None,
    ) -> tuple[PackedPayload, Graph]:
        """Run the forward.

        Args:
            inputs: The input payload.
            step: Number of the iteration.
            rows: The rows of the batch.
            compute_loss: For the last stage: computes the loss from the output.
            keep: Whether to keep the graph for a backward. Without it the same kernels run (they may depend on whether
                a gradient is required), but nothing is saved.
            defer: Whether to defer weight gradients.
            hooks: Receive the saved tensors.

        Returns:
            The output payload and the graph.
        """
        graph = Graph([], WeightGradQueue() if defer else None, list(inputs.needs_grad), [])
        saving = hooks or (NULL_CONTEXT if keep else saved_tensors_hooks(lambda _: None, _refuse_backward))
        with torch.enable_grad(), saving:
            activations = self._call(unpack(inputs, attach_inputs(inputs, graph)), graph, step, rows, compute_loss)
        packed, tensors = pack(activations)
        if compute_loss is not None:
            graph.loss_grads = [torch.ones_like(tensor) for tensor in tensors if tensor.requires_grad]
        if keep:
            graph.outputs = [get_gradient_edge(tensor) for tensor in tensors if tensor.requires_grad]
        return packed, graph

    def evaluate(self, inputs: PackedPayload, step: int, rows: Rows, compute_loss: ComputeLoss | None) -> PackedPayload:
        """Run the forward without gradients."""
        graph = Graph([], None, [], [])
        with torch.no_grad():
            return pack(self._call(unpack(inputs, list(inputs.tensors)), graph, step, rows, compute_loss))[0]

    def _call(
        self,
        activations: Activations,
        graph: Graph,
        step: int,
        rows: Rows,
        compute_loss: ComputeLoss | None,
    ) -> Activations:
        with self._instrumentation.at_forward(graph, step, rows) as enter_layer:
            return self._call_blocks(activations, enter_layer, step, rows, compute_loss)

    def _call_blocks(
        self,
        activations: Activations,
        enter_layer: EnterLayer | None,
        step: int,
        rows: Rows,
        compute_loss: ComputeLoss | None,
    ) -> Activations:
        """Call the blocks, and the loss. The loss counts as a separate layer after the last one."""
        if self._check_finite and self._first_unit == 0:
            check_batch(activations, step, rows)
        layer = self._first_unit
        inputs = activations
        if layer:
            inputs = self.model_inputs(rows) if self._given is None else self._given
        for layer, block in enumerate(self.blocks, start=self._first_unit):
            if enter_layer is not None:
                enter_layer(layer)
            try:
                activations = block.call(activations, inputs)
            except Exception as error:
                error.add_note(
                    ModelLocation(f"In the forward of layer {layer} ({block.name}), {describe_rows(step, rows)}.")
                )
                raise
            if self._check_finite:
                check_output(activations, layer, block, step, rows)
        if compute_loss is not None:
            if enter_layer is not None:
                enter_layer(layer + 1)
            try:
                activations = compute_loss(activations)
            except Exception as error:
                error.add_note(ModelLocation(f"In the loss, {describe_rows(step, rows)}."))
                raise
            if self._check_finite:
                check_loss(activations, layer, step, rows)
        return activations

    def recompute(
        self,
        inputs: PackedPayload,
        step: int,
        rows: Rows,
        compute_loss: ComputeLoss | None,
        *,
        defer: bool,
        hooks: saved_tensors_hooks | None = None,
        sync_sums: Sequence[Tensor] = (),
    ) -> Graph:
        """Run the forward again for its backward. Buffers keep their values.

        `sync_sums` are the sums over replicas that the first forward recorded. The other arguments are those of `run`.
        """
        with self.preserve_buffers(), self.replay_sync(sync_sums):
            return self.run(inputs, step, rows, compute_loss, keep=True, defer=defer, hooks=hooks)[1]

    def backward(self, graph: Graph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the backward. Weight gradients are computed too, unless the graph defers them.

        Args:
            graph: The graph of the forward.
            grads: The gradients of the outputs, one for each entry of `graph.outputs`.

        Returns:
            The gradients of the inputs, one for each input tensor that needs one.
        """
        if graph.replay is not None:
            input_grads, graph.queue = graph.replay(grads)
            graph.replay = None
            return input_grads
        outputs = graph.outputs
        if not graph.retain:
            graph.outputs = []
        pairs = [(edge, grad) for edge, grad in zip(outputs, grads, strict=True) if grad is not None]
        if pairs:
            edges, edge_grads = tuple(edge for edge, _ in pairs), tuple(grad for _, grad in pairs)
            capture = NULL_CONTEXT if graph.queue is None else graph.queue.capture_grads(self._not_deferred)
            with self._without_autocast(), capture, self._instrumentation.at_backward(graph):
                # torch.autograd.backward without its checks, which take longer than small layers do.
                _engine_run_backward(
                    edges, edge_grads, graph.retain, False, (), allow_unreachable=True, accumulate_grad=True
                )
            if graph.queue is not None:
                # Usually these are few, and checking all parameters would take time. A gradient that is missed is
                # still accumulated, only not deferred.
                self._not_deferred = graph.queue.not_deferred
        # The graph and its captured gradients form a reference cycle: break it.
        captured, graph.input_grads = graph.input_grads, []
        return captured or [None] * sum(graph.needs_grad)

    def backward_weight(self, graph: Graph) -> None:
        """Compute the weight gradients that the backward deferred."""
        if graph.queue is not None:
            with self._without_autocast():
                graph.queue.run()

    def _without_autocast(self) -> AbstractContextManager[None]:
        """Disable autocast in the backward, as torch advises: its types follow from those of the forward."""
        kind = self._device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else NULL_CONTEXT

    @contextmanager
    def preserve_buffers(self) -> Iterator[None]:
        """Restore all buffers on exit."""
        # Replace the buffers instead of writing the old values back: graphs in flight may hold them.
        before = [(module, name, module._buffers[name]) for module, name in self._buffers]
        for module, name, buffer in before:
            module._buffers[name] = None if buffer is None else buffer.clone()
        try:
            yield
        finally:
            for module, name, buffer in before:
                module._buffers[name] = buffer


def _refuse_backward(_: object) -> Tensor:
    raise AssertionError("this forward ran without keeping its graph")
