"""`Engine` and `Export`: an engine that plans can be exported to, and the exported files."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.export.limits import Limits, Obstacle
from penstock.export.subject import Subject
from penstock.plan import MessageModel


@dataclass(frozen=True)
class Draft:
    """The files of an engine for a plan, before the files that all exports have are added.

    Attributes:
        files: The contents of each file, by name.
        run: How to run the export: Markdown, for the README.
        approximations: What the engine does not do exactly as the plan says; sentences.
    """

    files: Mapping[str, str]
    run: str
    approximations: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """A training engine.

    Attributes:
        name: Its name on the command line.
        title: Its own name.
        limits: What it can run.
        draft: Makes the files of a plan without obstacles.
        starts_itself: Whether it has a launcher of its own, so that the export has no launch script.
        messages: How it moves messages; None: as Penstock does.
        find_obstacles: What it cannot say beside its limits. It is called for plans within the limits.
    """

    name: str
    title: str
    limits: Limits
    draft: Callable[[Subject], Draft]
    starts_itself: bool = False
    messages: MessageModel | None = None
    find_obstacles: Callable[[Subject], Iterable[Obstacle]] = lambda _: ()


@dataclass(frozen=True)
class Export:
    """A plan in the form of an engine.

    Attributes:
        engine: The name of the engine.
        files: The contents of each file, by name.
        approximations: What the engine does not do exactly as the plan says; sentences.
    """

    engine: str
    files: Mapping[str, str] = field(repr=False)
    approximations: tuple[str, ...] = ()
