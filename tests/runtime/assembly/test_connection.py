"""What is refused before ranks connect."""

import pytest

from penstock.errors import InputError
from penstock.runtime.assembly.connection import check_num_ranks
from tests.support.runtime.assembly import PLAN, build


def test_too_few_ranks_are_refused() -> None:
    _, compiled, _ = build("mlp", PLAN, 0)
    check_num_ranks(compiled.layout, 2)
    with pytest.raises(InputError, match="the plan uses 2 devices, but there is only 1 rank"):
        check_num_ranks(compiled.layout, 1)
