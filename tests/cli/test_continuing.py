"""What is left of a rollout's rules once a part of it has been done."""

import pytest

from rollout.cli.continuing import after_steps
from rollout.model.quantity import Count


@pytest.mark.parametrize(
    ("sizes", "taken", "left"),
    [
        ((), 3, ()),
        ((1, 3, 10), 0, (1, 3, 10)),
        ((1, 3, 10), -1, (1, 3, 10)),
        ((1, 3, 10), 1, (3, 10)),
        ((1, 3, 10), 2, (2, 10)),
        ((1, 3, 10), 4, (10,)),
        ((1, 3, 10), 40, (10,)),
    ],
)
def test_a_ramp_goes_on_from_where_it_was(sizes: tuple[int, ...], taken: int, left: tuple[int, ...]) -> None:
    assert after_steps(sizes, taken) == tuple(map(Count, left))
