"""Program slices: the part of a lowered program that one device runs, and the file that holds all of them."""

from penstock.program.slices.program_slice import ProgramSlice, slice_program
from penstock.program.slices.slice_file import (
    FORMAT,
    PackedSlices,
    load_slice,
    pack_slices,
    save_slices,
    unpack_slice,
)

__all__ = [
    "FORMAT",
    "PackedSlices",
    "ProgramSlice",
    "load_slice",
    "pack_slices",
    "save_slices",
    "slice_program",
    "unpack_slice",
]
