"""What stood on a Node before ours: written down, kept over attempts and runs, and put back."""

from rollout.model import marks
from rollout.model.replaced import parse_replaced, replacing
from tests.planning.builders import node

OURS = {"a": "1", "x": "new"}


def test_the_value_before_is_written_down_and_put_back() -> None:
    before = node("w-1", labels={"a": "0"})
    written = replacing(before, OURS)
    assert written == '{"labels":{"a":["1","0"],"x":["new",null]}}'
    replaced = parse_replaced(written)
    assert replaced is not None
    after = node("w-1", labels={"a": "1", "x": "new"})
    assert replaced.restoring(after, {"a", "x"}) == {"a": "0", "x": None}
    assert replaced.restoring(after, {"x"}) == {"x": None}
    assert replaced.restoring(before, {"a", "x"}) == {}


def test_a_second_attempt_does_not_take_ours_for_somebody_elses() -> None:
    written = replacing(node("w-1", labels={"a": "0"}), OURS)
    assert written is not None
    claimed = node("w-1", labels=OURS, annotations={marks.REPLACED: written})
    assert replacing(claimed, OURS) == written
    later = replacing(claimed, {"a": "2", "b": "3"})
    assert later == '{"labels":{"a":["2","0"],"x":["new",null],"b":["3",null]}}'
