"""Random plans that an engine can run: any cuts, replicas, order of devices, and map that it has."""

from hypothesis import strategies as st
from msgspec.structs import replace

import penstock
from penstock.export import find_engine
from penstock.plan import Plan
from tests.support.exports import block_names, devices, make_plan, named_profile

EIGHT = devices(8)
ROWS = 12


@st.composite
def plans(draw: st.DrawFn, engine: str) -> tuple[Plan, penstock.Profile]:
    """A plan that the engine can run: any cuts, replicas, order of devices, and map that it has."""
    num_blocks = draw(st.integers(2, 6))
    profile = replace(named_profile(block_names(num_blocks)), micro_batch_size=ROWS)
    replicas = draw(st.sampled_from([1, 2, 3]))
    ranks = draw(st.integers(1, min(8 // replicas, 3)))
    chunks = 1 if engine == "deepspeed" or ranks == 1 else draw(st.integers(1, 2))
    is_fine = engine == "deepspeed" or (engine == "megatron" and draw(st.booleans()))
    places = range(2, profile.num_units - 1) if is_fine else [1, *range(3, profile.num_units - 1, 2)]
    most = min(ranks * chunks - 1, len(places))
    ranks, chunks = (ranks, chunks) if most == ranks * chunks - 1 else (most + 1, 1)
    if ranks * replicas > 8:
        replicas = 1
    chosen = draw(
        st.lists(st.sampled_from(places), min_size=ranks * chunks - 1, max_size=ranks * chunks - 1, unique=True)
    )
    names = draw(st.permutations([device.name for device in EIGHT.devices]))
    groups = [list(names[rank * replicas : (rank + 1) * replicas]) for rank in range(ranks)]
    schedule = {"megatron": "interleaved", "deepspeed": "1f1b"}.get(engine) or draw(
        st.sampled_from(["gpipe", "1f1b", "interleaved", "zb_h1", "auto"])
    )
    recomputed = {
        "megatron": st.sampled_from([(), tuple(range(ranks * chunks))]),
        "deepspeed": st.lists(st.integers(0, ranks * chunks - 1), unique=True),
        "torch": st.just(()),
    }
    plan = make_plan(
        profile,
        EIGHT,
        [0, *sorted(chosen), profile.num_units],
        groups * chunks,
        schedule=schedule,
        num_microbatches=ranks * draw(st.integers(1, 3)),
        rows=ROWS,
        recompute=draw(recomputed[engine]),
    )
    return replace(plan, messages=find_engine(engine).messages), profile
