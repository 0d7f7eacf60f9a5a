"""Elastic training: a run that goes on after losses, and uses devices again when they are back.

    decisions.py      pure: what a failed run means, which devices remain, when a device is checked, whether to go on
    plan_shelf.py     plans for losses, made by a process of low priority while training runs (`planning_main.py`)
    generation.py     one set of ranks that trains with one plan, from the start or a copy up to a failure or a switch
    supervisor.py     the loop: generations one after the other
    copy_memory.py    the memory of copies beside what the proof of a plan counts
    devices.py        checks whether a lost device works again (`device_main.py`)

The supervisor knows why a plan changes; the ranks do not. They train with a plan until a failure ends them, or until
the file `stop` in the folder of the run says `SWITCH`: then they finish the step, complete a copy of their state in
memory and end. The next ranks restore that copy under any plan (`Pipeline.load_copy`). So whoever wants another plan,
after a loss, for a device that is back or because a device has become slow, calls `switch` of the generation that runs,
and starts the next one with the other plan.
"""

from penstock.launch.elastic.decisions import Absence, Loss, PlanChange, find_loss, is_recoverable
from penstock.launch.elastic.elastic_options import ElasticOptions
from penstock.launch.elastic.generation import Generation
from penstock.launch.elastic.plan_shelf import PlanShelf, ShelvedPlan
from penstock.launch.elastic.supervisor import train_elastic

__all__ = [
    "Absence",
    "ElasticOptions",
    "Generation",
    "Loss",
    "PlanChange",
    "PlanShelf",
    "ShelvedPlan",
    "find_loss",
    "is_recoverable",
    "train_elastic",
]
