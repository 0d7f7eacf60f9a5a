"""Iteration times by computed profiles and simulation."""

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec

from benchmarks.truth.measured_layers import Key, Seconds, key_of, with_measured_layers
from benchmarks.truth.rows import Model, Row
from penstock.cluster import Cluster, Device, Host, Wire
from penstock.export import find_engine
from penstock.plan import Origin, Plan, Replica, Stage
from penstock.profile import KINDS, MeasuredAllReduce, Profile, Recipe, group_kind, measured_all_reduce
from penstock.profile.analytic import analytic_profile
from penstock.simulate import evaluate

KIND = "A100-80"
VOCABULARY = 50257
NVLINK = Wire(bandwidth=300e9 * 0.8, latency_s=10e-6)
"""Between two GPUs of the host: the part of a module's NVLink that copies between two GPUs attain."""


class Factors(NamedTuple):
    """What is fitted: the attainable fractions of the data sheet, and the least seconds of a kernel."""

    matmul_fraction: float = KINDS[KIND].matmul_fraction
    bandwidth_fraction: float = KINDS[KIND].bandwidth_fraction
    launch_s: float = KINDS[KIND].launch_s
    misaligned_fraction: float = KINDS[KIND].misaligned_fraction
    reduction_s: float = 1e-9
    """Added to every all-reduce inside the layers, for every doubling of the GPUs: they wait for the last one."""


DATA_SHEET = Factors()
"""Nothing fitted."""


class Predictor:
    """Predicts the iterations of the table's configurations."""

    def __init__(
        self,
        tables: tuple[MeasuredAllReduce, ...],
        factors: Factors = DATA_SHEET,
        layers: Mapping[Key, Seconds] | None = None,
    ) -> None:
        """With `layers`, blocks and ends take what was measured."""
        self._tables = tables
        self._layers = layers
        measured = measured_all_reduce(tables)

        def all_reduce_s(num_devices: int, num_bytes: float) -> float:
            return measured(num_devices, num_bytes) + math.log2(num_devices) * factors.reduction_s

        self._all_reduce = all_reduce_s
        self._factors = factors
        self._profiles: dict[tuple[Model, int, int], Profile] = {}
        self._clusters: dict[tuple[int, int], Cluster] = {}
        self._seconds: dict[Row, float] = {}

    def seconds(self, row: Row) -> float:
        """Simulate one iteration under 1F1B with equal numbers of blocks on every stage."""
        if row not in self._seconds:
            self._seconds[row] = self._simulate(row)
        return self._seconds[row]

    def _simulate(self, row: Row) -> float:
        profile, cluster = self.profile(row), self._cluster(row)
        plan = _plan(row, profile, cluster)
        result = evaluate(plan, profile, cluster, within_memory=False)
        return result.timeline.iteration_s

    def profile(self, row: Row) -> Profile:
        """The computed profile of the row's model."""
        key = (row.model, row.micro_batch_size, row.tensor)
        if key not in self._profiles:
            kind = msgspec.structs.replace(
                KINDS[KIND],
                matmul_fraction=self._factors.matmul_fraction,
                bandwidth_fraction=self._factors.bandwidth_fraction,
                launch_s=self._factors.launch_s,
                misaligned_fraction=self._factors.misaligned_fraction,
            )
            self._profiles[key] = analytic_profile(
                _config(row.model),
                kinds=[kind],
                micro_batch_size=row.micro_batch_size,
                sequence=row.model.sequence,
                recipe=Recipe(
                    precision="fp16", attention="eager", checkpointing="selective", tensor_parallel=row.tensor
                ),
                all_reduce=self._all_reduce,
            )
            if self._layers is not None:
                self._profiles[key] = with_measured_layers(
                    self._profiles[key], self._layers[key_of(row)], row.model.layers
                )
        return self._profiles[key]

    def _cluster(self, row: Row) -> Cluster:
        key = (row.tensor, row.data * row.pipeline)
        if key not in self._clusters:
            kind = group_kind(KIND, row.tensor)
            self._clusters[key] = Cluster(
                name="one host",
                hosts=(Host(name="h0", inside=NVLINK),),
                devices=tuple(Device(name=f"d{number}", kind=kind, host="h0") for number in range(key[1])),
                between=NVLINK,
                all_reduces=self._tables,
            )
        return self._clusters[key]


@lru_cache
def _config(model: Model) -> Mapping[str, object]:
    return {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": model.sequence,
        "n_embd": model.hidden,
        "n_layer": model.layers,
        "n_head": model.heads,
    }


def _plan(row: Row, profile: Profile, cluster: Cluster) -> Plan:
    """Equal numbers of blocks; the first stage has the embedding, the last the head."""
    blocks = row.model.layers // row.pipeline
    cuts = [0, *(1 + 2 * blocks * stage for stage in range(1, row.pipeline)), profile.num_units]
    stages = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        group = tuple(Replica(f"d{number * row.data + replica}", 1 / row.data) for replica in range(row.data))
        stages.append(Stage(start=start, stop=stop, forward=group, backward=group))
    return Plan(
        planner="table",
        schedule="1f1b",
        num_microbatches=row.num_microbatches,
        micro_batch_size=row.micro_batch_size * row.data,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(stages),
        messages=find_engine("deepspeed").messages,
    )
