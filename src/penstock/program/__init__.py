"""Programs: the actions of every device in order."""

from penstock.program.actions import NONE, RECV_KINDS, SEND_KINDS, Action, Kind, parse_action
from penstock.program.dependencies import Lists, durations, wire
from penstock.program.job_table import find_jobs, replicas_of
from penstock.program.types import (
    FORMAT,
    Program,
    encode_program,
    load_program,
    program_from_actions,
    program_from_arrays,
    save_program,
)

__all__ = [
    "FORMAT",
    "NONE",
    "RECV_KINDS",
    "SEND_KINDS",
    "Action",
    "Kind",
    "Lists",
    "Program",
    "durations",
    "encode_program",
    "find_jobs",
    "load_program",
    "parse_action",
    "program_from_actions",
    "program_from_arrays",
    "replicas_of",
    "save_program",
    "wire",
]
