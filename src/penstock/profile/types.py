"""`Profile` and its parts: the cost of a model by layer. The types are also the file format (docs/formats.md)."""

import math
from functools import cached_property
from typing import Annotated

import msgspec

from penstock import io
from penstock.names import check_name_lengths
from penstock.profile.consistency import check_largest, check_tie, check_ties, make_floats, measurements, no_repeats
from penstock.profile.limits import Bytes, Ratio, Rows, Seconds
from penstock.profile.overhead import Overhead
from penstock.profile.restrictions import Restriction, check_restrictions
from penstock.profile.spread import UNSTATED, Spread

FORMAT = "penstock.profile/2"

UNNAMED_KIND = "profiled"
"""The device kind of a file that does not name the device that it was measured on."""
LATER_FIELDS = ("largest_parameter_bytes", "overheads", "parameter_counts", "restrictions")
"""Fields that the digest leaves out while they are empty: files that were written without them keep their digest."""


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times of one layer for one micro-batch size on one device kind, in seconds.

    Attributes:
        kind: Device kind, such as "A100-40".
        micro_batch_size: Rows of the micro-batch.
        forward_s: Forward of one micro-batch.
        input_grad_s: Input gradient of one micro-batch.
        weight_grad_s: Weight gradient of one micro-batch.
        step_s: Optimizer step of this layer, once per iteration.

    Example:
        >>> Times(kind="T4", micro_batch_size=4, forward_s=1e-3, input_grad_s=1e-3, weight_grad_s=1e-3).step_s
        0.0
    """

    kind: str
    micro_batch_size: Rows
    forward_s: Seconds
    input_grad_s: Seconds
    weight_grad_s: Seconds
    step_s: Seconds = 0.0

    def __post_init__(self) -> None:
        make_floats(self, ("forward_s", "input_grad_s", "weight_grad_s", "step_s"))
        if not all(map(math.isfinite, (self.forward_s, self.input_grad_s, self.weight_grad_s, self.step_s))):
            raise ValueError("seconds must be finite")


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tensor sizes of one layer for one micro-batch size, in bytes.

    Attributes:
        micro_batch_size: Rows of the micro-batch.
        cut_bytes: All tensors alive across the cut after this layer. Their gradients have the same size.
        saved_bytes: Tensors that the forward saves for the backward, its input included.
        pending_bytes: Tensors kept between the input gradient and the weight gradient. None: as `saved_bytes`.

    Example:
        >>> Sizes(micro_batch_size=4, cut_bytes=1 << 20, saved_bytes=1 << 22).cut_bytes
        1048576
    """

    micro_batch_size: Rows
    cut_bytes: Bytes
    saved_bytes: Bytes
    pending_bytes: Bytes | None = None


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One layer: the smallest piece of a model that is never split.

    Attributes:
        name: Unique name, such as "block.3.attn".
        parameter_bytes: Parameters of the layer, tied ones included.
        sizes: Tensor sizes, one entry for each micro-batch size.
        times: Times, one entry for each pair of device kind and micro-batch size.
        trained_parameter_bytes: Those of them that are trained, the others are frozen. None: all.
        recomputed_bytes: Tensors that activation checkpointing inside the layer computes again in the backward: those
            of the largest checkpointed part, which are held while its backward runs. One entry for each of `sizes`;
            empty if there is none.

    Raises:
        ValueError: `sizes` or `times` is empty or has duplicate entries, more is trained than there is, or
            `recomputed_bytes` has another length than `sizes`.

    Example:
        >>> times = Times(kind="T4", micro_batch_size=4, forward_s=1e-3, input_grad_s=1e-3, weight_grad_s=1e-3)
        >>> sizes = Sizes(micro_batch_size=4, cut_bytes=1 << 20, saved_bytes=1 << 22)
        >>> Unit(name="mlp", parameter_bytes=1 << 24, sizes=(sizes,), times=(times,)).name
        'mlp'
    """

    name: str
    parameter_bytes: Bytes
    sizes: tuple[Sizes, ...]
    times: tuple[Times, ...]
    trained_parameter_bytes: Bytes | None = None
    recomputed_bytes: tuple[Bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.trained_bytes > self.parameter_bytes:
            raise ValueError(f"the trained parameters of layer {self.name!r} are larger than all its parameters")
        if not self.sizes or not self.times:
            raise ValueError(f"layer {self.name!r} needs at least one entry in sizes and one in times")
        if self.recomputed_bytes and len(self.recomputed_bytes) != len(self.sizes):
            raise ValueError(
                f"recomputed_bytes of layer {self.name!r} has {len(self.recomputed_bytes)} entries for "
                f"{len(self.sizes)} sizes"
            )
        no_repeats([size.micro_batch_size for size in self.sizes], f"sizes of layer {self.name!r}")
        no_repeats([(time.kind, time.micro_batch_size) for time in self.times], f"times of layer {self.name!r}")

    @property
    def trained_bytes(self) -> int:
        """Trained parameters: those with gradients and optimizer state."""
        return self.parameter_bytes if self.trained_parameter_bytes is None else self.trained_parameter_bytes


class Tie(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Parameters that several layers share, such as a tied word embedding.

    Attributes:
        name: Name of the parameters.
        parameter_bytes: Their size. `parameter_bytes` of each layer includes it.
        units: Indices of the layers, at least two.
        is_trained: Whether they are trained: `trained_parameter_bytes` of each layer includes them.

    Example:
        >>> Tie(name="word embedding", parameter_bytes=1 << 24, units=(0, 25)).units
        (0, 25)
    """

    name: str
    parameter_bytes: Bytes
    units: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    is_trained: bool = True


class ParameterCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Numbers of parameters of a mixture of experts. Tied parameters count once.

    Attributes:
        total: All parameters. All have gradients and optimizer state.
        active: Those that one token uses: everything except the experts that it is not routed to.

    Example:
        >>> ParameterCounts(total=46_702_792_704, active=12_879_925_248).active
        12879925248
    """

    total: Annotated[int, msgspec.Meta(ge=0)]
    active: Annotated[int, msgspec.Meta(ge=0)]


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The cost of a model: its layers as a chain, with times and sizes for each.

    Profiles are immutable. `load_profile` reads or computes one, `penstock.profile` measures one.

    Attributes:
        format: Format version of the file.
        name: Name of the model.
        micro_batch_size: Default micro-batch size of plans.
        units: The layers in topological order.
        input_bytes: The model's input for one micro-batch of `micro_batch_size` rows.
        ties: Parameters that several layers share.
        gradient_ratio: Bytes of gradients per byte of trained parameters.
        optimizer_ratio: Bytes of optimizer state per byte of trained parameters (Adam in one precision: 2).
        assumptions: Sentences about everything that the source does not specify and that was assumed.
        is_steady: False if the measurement ended before its times were within tolerance.
        largest_parameter_bytes: The largest single trained parameter of each layer, for the workspace of actions. Empty
            if unknown.
        overheads: Runtime overhead by device kind. A kind without an entry has none.
        parameter_counts: Total and active parameters of a mixture of experts. None: every token uses all, or unknown.
        restrictions: What layers require of a plan, such as batch norm of its replicas. Training refuses other plans.
        architecture: The model_type of the Hugging Face configuration that the profile was computed from, by which
            exports name modules. Empty if there is none.
        spread: How far the times of training may lie from those of the profile. None: not stated.

    Raises:
        ValueError: Layers are missing, duplicate or measured for different device kinds and micro-batch sizes, or a
            tie or another field contradicts the layers.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=4, sequence=512)
        >>> profile.num_units, profile.kinds
        (26, ('T4',))
    """

    format: str = FORMAT
    name: str
    micro_batch_size: Rows
    units: tuple[Unit, ...]
    input_bytes: Bytes = 0
    ties: tuple[Tie, ...] = ()
    gradient_ratio: Ratio = 1.0
    optimizer_ratio: Ratio = 2.0
    assumptions: tuple[str, ...] = ()
    is_steady: bool = True
    largest_parameter_bytes: tuple[Bytes, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    parameter_counts: ParameterCounts | None = None
    restrictions: tuple[Restriction, ...] = ()
    architecture: str = ""
    spread: Spread | None = None

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError("a profile needs at least one layer")
        make_floats(self, ("gradient_ratio", "optimizer_ratio"))
        if not (math.isfinite(self.gradient_ratio) and math.isfinite(self.optimizer_ratio)):
            raise ValueError("gradient_ratio and optimizer_ratio must be finite")
        check_name_lengths([self.name, *self.kinds, *(unit.name for unit in self.units)])
        check_name_lengths(tie.name for tie in self.ties)
        no_repeats([unit.name for unit in self.units], "layer names")
        expected = measurements(self.units[0])
        for unit in self.units:
            if measurements(unit) != expected:
                raise ValueError(
                    f"layer {unit.name!r} must have times for the same device kinds and micro-batch sizes as "
                    f"{self.units[0].name!r}"
                )
        if self.largest_parameter_bytes:
            check_largest(self.largest_parameter_bytes, self.units)
        no_repeats([overhead.kind for overhead in self.overheads], "overheads")
        if self.parameter_counts and self.parameter_counts.active > self.parameter_counts.total:
            raise ValueError("parameter_counts: active is larger than total")
        for tie in self.ties:
            check_tie(tie, self.units)
        check_restrictions(self.restrictions, len(self.units))
        if self.spread is not None:
            self.spread.check_layers(len(self.units))
        for number, unit in enumerate(self.units):
            check_ties(unit, [tie for tie in self.ties if number in tie.units])

    @property
    def num_units(self) -> int:
        """Number of layers."""
        return len(self.units)

    @property
    def known_spread(self) -> Spread:
        """The stated spread, or the assumed one of profiles that state none."""
        return UNSTATED if self.spread is None else self.spread

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Device kinds with times, in the order of the file."""
        return tuple(dict.fromkeys(time.kind for time in self.units[0].times))

    @cached_property
    def digest(self) -> str:
        """Hash of the contents, without `assumptions`, `is_steady`, `architecture` and `spread`."""
        plain = msgspec.structs.replace(self, assumptions=())
        absent = [name for name in LATER_FIELDS if not getattr(self, name)]
        return io.digest(plain, without=["is_steady", "architecture", "spread", *absent])
