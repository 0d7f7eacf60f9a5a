"""Runs the exported plan with DeepSpeed: a PipelineModule whose stages are those of the plan.

    deepspeed.init_distributed()
    module = PlannedPipelineModule(layers, loss_fn=loss_fn)   # layers: modules or LayerSpecs, in the plan's order
    engine, *_ = deepspeed.initialize(model=module, model_parameters=..., config=config())
    loss = engine.train_batch(data_iter)

Ranks are numbered as in ranks.csv.
"""

import json
from pathlib import Path
from typing import Any

import deepspeed
from deepspeed.pipe import PipelineModule, TiedLayerSpec
from deepspeed.runtime.activation_checkpointing.checkpointing import non_reentrant_checkpoint
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

FOLDER = Path(__file__).parent


def config(**others: Any) -> dict[str, Any]:
    """The configuration of the plan, with your own keys, such as `optimizer` and `bf16`."""
    return {**others, **json.loads((FOLDER / "ds_config.json").read_text())}


class PlannedPipelineModule(PipelineModule):  # type: ignore[misc]
    """A PipelineModule with the stages, replicas and recomputation of `partition.json`."""

    def __init__(self, layers: Any, **options: Any) -> None:
        self.plan = json.loads((FOLDER / "partition.json").read_text())
        stages, replicas = len(self.plan["recompute"]), self.plan["replicas"]
        world = deepspeed.comm.get_world_size()
        if world != stages * replicas:
            raise RuntimeError(f"the plan is for {stages * replicas} ranks, but there are {world}")
        options.setdefault("activation_checkpoint_func", non_reentrant_checkpoint)
        super().__init__(layers, topology=PipeDataParallelTopology(num_pp=stages, num_dp=replicas), **options)
        if self.plan["recompute"][self.stage_id]:
            self.activation_checkpoint_interval = len(self.forward_funcs)

    def _partition_layers(self, method: str = "plan") -> None:
        """Take the cuts of the plan. DeepSpeed calls this instead of its own partition."""
        del method
        known = {len(item["layers"]): item for item in self.plan["partitions"]}
        number = len(self._layer_specs)
        if number not in known:
            counts = " or ".join(map(str, known))
            raise ValueError(f"the plan is for {counts} layers (partition.json lists them), not for {number}")
        self._check_ties(known[number])
        self.parts = known[number]["cuts"]
        self._set_bounds(start=self.parts[self.stage_id], stop=self.parts[self.stage_id + 1])

    def _check_ties(self, partition: dict[str, Any]) -> None:
        for tie in partition["ties"]:
            specs = [self._layer_specs[index] for index in tie]
            if not all(isinstance(spec, TiedLayerSpec) for spec in specs) or len({spec.key for spec in specs}) != 1:
                names = ", ".join(partition["layers"][index] for index in tie)
                raise ValueError(f"{names} share parameters: make each a TiedLayerSpec with the same key")
