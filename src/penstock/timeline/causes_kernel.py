"""The compiled inner loop of `causes`: the last of several candidates."""

import numba

from penstock.arrays import Floats, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def take_later(cause: Ints, time: Floats, rows: Ints, candidate_s: Floats, candidate: Ints, win_ties: bool) -> None:
    """Where a candidate came later than what is known so far (or as late, with `win_ties`), it is the cause."""
    for entry in range(len(rows)):
        row = rows[entry]
        if candidate_s[entry] > time[row] or (win_ties and candidate_s[entry] == time[row]):
            time[row] = candidate_s[entry]
            cause[row] = candidate[entry]
