"""The processes of `penstock emulate`, started as `-m penstock.launch.ranks.emulate_main FOLDER PARENT`.

The folder has emulation.json, which says what to emulate; ranks write into it what happens, as those of a training do.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.emulation import Emulation, Meeting, Told, load_emulation, run_world
from penstock.emulation.network import die_with_parent
from penstock.errors import InputError, PenstockError
from penstock.launch.events import Began, Done, Event, EventWriter, Failed, LinksChanged, Noticed, Sampled, Started

if TYPE_CHECKING:
    from penstock.emulation.rank import Scratch

FILE = "emulation.json"

Tell = Callable[[Event], None]


def main(folder: Path, parent: int) -> int:
    """Emulate what the folder says."""
    die_with_parent(parent)

    def failed(error: BaseException) -> None:
        EventWriter(folder, 0).tell(_failed(error))

    def changed(fault: int) -> None:
        # Among the words of rank 0: so it is known in which of its steps that was.
        EventWriter(folder, 0).tell(LinksChanged(fault))

    try:
        emulation = load_emulation(folder / FILE)
        # Before there are several processes, so that they all have it.
        import torch

        from penstock.emulation import rank as _rank  # noqa: F401
        from penstock.emulation.rank import Scratch

        torch.set_num_threads(1)
        scratch = Scratch(emulation.evaluation.costs)
        if emulation.script is not None:
            _write_files(emulation, folder)

        def rank_main(rank: int, meeting: Meeting, begins: Callable[[int], None]) -> int:
            return _run_rank(emulation, scratch, folder, rank, meeting, begins)

        return run_world(emulation, rank_main, Told(failed, changed))
    except BaseException as error:
        failed(error)
        return 1


def _run_rank(
    emulation: Emulation, scratch: "Scratch", folder: Path, rank: int, meeting: Meeting, begins: Callable[[int], None]
) -> int:
    writer = EventWriter(folder, rank)
    killed = {item.step for item in emulation.faults.killed if item.rank == rank}

    def tell(event: Event) -> None:
        writer.tell(event)
        if isinstance(event, Began):
            begins(event.step)
            if event.step in killed:
                os.kill(os.getpid(), signal.SIGKILL)

    # Process numbers mean nothing outside the namespace: nobody may kill by them.
    tell(Started(rank, rank, 0))
    try:
        if emulation.script is None:
            for event in _sleep(emulation, scratch, rank, meeting, tell):
                tell(event)
        else:
            _compute(emulation, emulation.script, folder, rank, meeting, tell)
    except BaseException as error:
        tell(_failed(error))
        return 1
    tell(Done())
    return 0


def _sleep(emulation: Emulation, scratch: "Scratch", rank: int, meeting: Meeting, tell: Tell) -> Iterator[Event]:
    """Devices that sleep; gives what rank 0 has to tell."""
    from penstock.emulation.rank import join, run_rank

    num_ranks = len(emulation.devices)
    join(rank, num_ranks, meeting.address, meeting.port, meeting.interface, emulation.timeout_s)
    for found in run_rank(emulation, rank, scratch, lambda step: tell(Began(step))):
        if found is not None:
            times = found.timeline
            yield Sampled(found.step, tuple(times.start_s.tolist()), tuple(times.end_s.tolist()))
            yield Noticed(found.step, found.busy, found.lateness)


def _compute(emulation: Emulation, script: str, folder: Path, rank: int, meeting: Meeting, tell: Tell) -> None:
    """Devices that compute: a training like any other, inside the namespaces."""
    from penstock.launch.ranks.train import train_rank
    from penstock.launch.train_options import Training

    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK="0",
        WORLD_SIZE=str(len(emulation.devices)),
        MASTER_ADDR=meeting.address,
        MASTER_PORT=str(meeting.port),
        GLOO_SOCKET_IFNAME=meeting.interface,
    )
    asked = Training(
        script=script,
        plan=str(folder / "plan.json"),
        profile=str(folder / "profile.json"),
        cluster=str(folder / "cluster.toml"),
        steps=emulation.num_steps,
        timeout=emulation.timeout_s,
        threads=1,
    )
    train_rank(asked, tell, alone=False)


def _write_files(emulation: Emulation, folder: Path) -> None:
    from penstock.cluster.toml import write_cluster
    from penstock.plan import save_plan
    from penstock.profile import save_profile

    save_plan(emulation.plan, folder / "plan.json")
    save_profile(emulation.profile, folder / "profile.json")
    (folder / "cluster.toml").write_text(write_cluster(emulation.cluster))


def _failed(error: BaseException) -> Event:
    if not isinstance(error, PenstockError):
        # A mistake of ours: nothing is hidden of it.
        traceback.print_exception(error)
        return Failed(type(error).__name__, f"{type(error).__name__}: {error}", False)
    is_input = isinstance(error, InputError)
    return Failed(type(error).__name__, str(error), is_input, "\n".join(getattr(error, "__notes__", ())))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
