"""Programs: the actions of every device in order."""

from penstock.program.actions import (
    NONE,
    RECV_KINDS,
    SEND_KINDS,
    Action,
    Kind,
    is_compute,
    is_one_of,
    is_pass,
    is_recv,
    is_reduction,
    is_send,
    parse_action,
)
from penstock.program.dependencies import Lists, durations, find_dependencies
from penstock.program.job_table import find_jobs, replicas_of
from penstock.program.order import program_of_order, with_order
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
    "find_dependencies",
    "find_jobs",
    "is_compute",
    "is_one_of",
    "is_pass",
    "is_recv",
    "is_reduction",
    "is_send",
    "load_program",
    "parse_action",
    "program_from_actions",
    "program_from_arrays",
    "program_of_order",
    "replicas_of",
    "save_program",
    "with_order",
]
