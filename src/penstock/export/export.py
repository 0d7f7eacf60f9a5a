"""`export_plan`: the plan of an evaluation in the form of an engine."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.errors import InputError
from penstock.export.engines import AUTOMODEL, DEEPSPEED, FLAGSCALE, MEGATRON, TORCH, TORCHTITAN
from penstock.export.limits import Obstacle, find_obstacles
from penstock.export.readme import make_readme, ranks_csv
from penstock.export.subject import Subject, make_subject
from penstock.export.template_files import read_template
from penstock.export.types import Engine, Export
from penstock.names import suggest_names
from penstock.profile import Profile
from penstock.schedules import schedule
from penstock.simulate import Evaluation

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {engine.name: engine for engine in (TORCH, TORCHTITAN, AUTOMODEL, MEGATRON, DEEPSPEED, FLAGSCALE)}
)
"""The engines that plans can be exported to, by name."""

_RECOMPUTATION = "{title} recomputes a stage in its backward; the plan may do so before the gradient arrives."


def find_engine(name: str) -> Engine:
    """Look up an engine.

    Raises:
        InputError: There is no engine of that name.
    """
    if name not in ENGINES:
        raise InputError(f"unknown engine {name[:60]!r}", hint=suggest_names(name, ENGINES, label="Engines", most=20))
    return ENGINES[name]


def obstacles_to(evaluation: Evaluation, profile: Profile, engine: str) -> tuple[Obstacle, ...]:
    """Everything in a plan that an engine cannot say; empty if it can be exported.

    Args:
        evaluation: The evaluated plan.
        profile: The profile that it was made for.
        engine: A key of `ENGINES`.
    """
    return _obstacles(make_subject(evaluation, profile), evaluation, find_engine(engine))


def export_plan(evaluation: Evaluation, profile: Profile, engine: str) -> Export:
    """Export an evaluated plan.

    Args:
        evaluation: The evaluated plan.
        profile: The profile that it was made for.
        engine: A key of `ENGINES`.

    Returns:
        The files, and what is only approximated.

    Raises:
        InputError: The engine is unknown, or cannot say something in the plan.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["A100-80"])
        >>> cluster = penstock.load_cluster("2 x A100-80 @ 100 GB/s")
        >>> plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b", cuts="whole")
        >>> sorted(export_plan(penstock.evaluate(plan, profile, cluster), profile, "megatron").files)
        ['README.md', 'launch.sh', 'megatron.sh', 'ranks.csv']
    """
    found, subject = find_engine(engine), make_subject(evaluation, profile)
    _refuse(found, _obstacles(subject, evaluation, found))
    draft = found.draft(subject)
    is_recomputed = any(stage.recompute for stage in subject.plan.stages)
    approximations = (
        _transfers(found, evaluation),
        *([_RECOMPUTATION.format(title=found.title)] if is_recomputed else []),
        *draft.approximations,
    )
    files = dict(draft.files)
    if not found.starts_itself:
        files |= {"ranks.csv": ranks_csv(subject), "launch.sh": read_template("launch.sh")}
    files["README.md"] = make_readme(subject, found, draft, approximations)
    return Export(found.name, files, approximations)


def _transfers(engine: Engine, evaluation: Evaluation) -> str:
    """With which transfers the prediction was made."""
    priced, own = evaluation.costs.plan.messages, engine.messages
    if priced == own:
        return f"The predicted time is that of {engine.title}'s transfers. {evaluation.costs.messages.sentence}"
    return (
        f"The predicted time is not that of {engine.title}'s transfers, because the plan was not made for "
        f"{engine.title}: penstock plan --engine {engine.name}."
    )


def require_exportable(evaluation: Evaluation, profile: Profile, engine: str) -> None:
    """Check that an evaluated plan can be exported.

    Raises:
        InputError: The engine is unknown, or cannot say something in the plan.
    """
    _refuse(find_engine(engine), obstacles_to(evaluation, profile, engine))


def _obstacles(subject: Subject, evaluation: Evaluation, engine: Engine) -> tuple[Obstacle, ...]:
    orders = None
    if engine.limits.schedule is not None:
        program = schedule(evaluation.costs, engine.limits.schedule)
        orders = {device: tuple(program.actions(device)) for device in program.devices}
    return find_obstacles(subject, engine.limits, orders) or tuple(engine.find_obstacles(subject))


def _refuse(engine: Engine, obstacles: tuple[Obstacle, ...]) -> None:
    if not obstacles:
        return
    parts = [f"{item.feature}: {item.what} ({item.switch})" for item in obstacles]
    untied = " --untied" if any(item.switch == "--untied" for item in obstacles) else ""
    raise InputError(
        f"{engine.title} cannot run this plan\n  " + "\n  ".join(parts),
        hint=f"Plan again within what it can run: penstock plan --engine {engine.name}{untied} ...",
    )
