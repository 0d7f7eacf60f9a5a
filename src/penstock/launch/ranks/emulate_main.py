"""The processes of `penstock emulate`, started as `-m penstock.launch.ranks.emulate_main FOLDER`.

FOLDER has emulation.json, the description of the emulation. Ranks write their events to FOLDER, as those of a training
run do.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dist import (
    Phase,
    delay_sigterm,
    die_with_parent,
    join_process_group,
    local_environment,
    open_status_board,
    started_by,
    status_board,
)
from penstock.emulation import Emulation, SupervisorEvents, load_emulation, run_ranks
from penstock.launch.ranks.failures import describe_failure
from penstock.launch.runs import (
    Began,
    Done,
    Event,
    EventWriter,
    Exited,
    LinksChanged,
    Noticed,
    Sampled,
    Started,
    Switched,
)

if TYPE_CHECKING:
    from penstock.emulation.rank import Scratch

FILE = "emulation.json"

Report = Callable[[Event], None]


def main(folder: Path) -> int:
    """Run the emulation that `folder` describes."""
    die_with_parent(started_by() or os.getppid())

    def report_failure(error: BaseException) -> None:
        EventWriter(folder, 0).write(describe_failure(error))

    def report_links_changed(fault: int) -> None:
        # Among the events of rank 0, so that its position tells the step.
        EventWriter(folder, 0).write(LinksChanged(fault))

    def report_exit(rank: int, code: int, was_stopped: bool) -> None:
        EventWriter(folder, rank).write(Exited(code, was_stopped))

    try:
        emulation = load_emulation(folder / FILE)
        # Imported before the fork, so that all ranks share it.
        import torch

        from penstock.emulation import rank as _rank  # noqa: F401
        from penstock.emulation.rank import Scratch, largest_payload, largest_payload_of_any_plan

        torch.set_num_threads(1)
        scratch = Scratch(
            largest_payload(emulation.evaluation.costs)
            if emulation.scenario is None
            else largest_payload_of_any_plan(emulation.profile, emulation.plan.micro_batch_size)
        )
        if emulation.script is not None:
            _write_files(emulation, folder)

        def rank_main(rank: int, interface: str, on_step: Callable[[int], None]) -> int:
            return _run_rank(emulation, scratch, folder, rank, interface, on_step)

        events = SupervisorEvents(report_failure, report_links_changed, report_exit)
        return run_ranks(emulation, rank_main, events)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        report_failure(error)
        return 1


def _run_rank(
    emulation: Emulation, scratch: "Scratch", folder: Path, rank: int, interface: str, on_step: Callable[[int], None]
) -> int:
    delay_sigterm(lambda: "")
    writer = EventWriter(folder, rank)
    kill_steps = {item.step for item in emulation.faults.killed if item.rank == rank}
    os.environ.update(
        local_environment(folder, interface),
        RANK=str(rank),
        LOCAL_RANK="0",
        WORLD_SIZE=str(len(emulation.devices)),
    )

    def report(event: Event) -> None:
        writer.write(event)
        if isinstance(event, Began):
            on_step(event.step)
            if event.step in kill_steps:
                os.kill(os.getpid(), signal.SIGKILL)

    # Without a process number: inside the namespace it is another one than outside.
    report(Started(rank, rank, 0))
    try:
        if emulation.script is None:
            for event in _sleep(emulation, scratch, rank, report, folder):
                report(event)
        else:
            _compute(emulation, emulation.script, folder, report)
    except BaseException as error:
        report(describe_failure(error))
        return 1
    report(Done())
    return 0


def _sleep(emulation: Emulation, scratch: "Scratch", rank: int, report: Report, folder: Path) -> Iterator[Event]:
    """Run a device that sleeps; yields the events of its iterations, on rank 0."""
    from penstock.emulation.rank import EmulatedIteration, EmulatedSwitch, run_rank

    open_status_board(folder, rank)
    board = status_board()
    join_process_group("gloo", emulation.timeout_s)

    def begin_step(step: int) -> None:
        board.enter_phase(Phase.STEP, step)
        report(Began(step))

    for result in run_rank(emulation, rank, scratch, begin_step, folder):
        match result:
            case EmulatedIteration():
                times = result.timeline
                yield Sampled(result.step, tuple(times.start_s.tolist()), tuple(times.end_s.tolist()))
                yield Noticed(result.step, result.busy, result.lateness)
            case EmulatedSwitch():
                yield Switched(result.step, result.number, result.seconds, result.num_bytes)


def _compute(emulation: Emulation, script: str, folder: Path, report: Report) -> None:
    """Run a device that computes: an ordinary rank of a training run, inside the namespace."""
    from penstock.launch.ranks.train import train_rank
    from penstock.launch.train_options import TrainOptions

    options = TrainOptions(
        script=script,
        plan=str(folder / "plan.json"),
        profile=str(folder / "profile.json"),
        cluster=str(folder / "cluster.toml"),
        steps=emulation.num_steps,
        timeout=emulation.timeout_s,
        threads=1,
    )
    train_rank(options, report)


def _write_files(emulation: Emulation, folder: Path) -> None:
    from penstock.cluster.toml import write_cluster
    from penstock.plan import save_plan
    from penstock.profile import save_profile

    save_plan(emulation.plan, folder / "plan.json")
    save_profile(emulation.profile, folder / "profile.json")
    (folder / "cluster.toml").write_text(write_cluster(emulation.cluster))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
