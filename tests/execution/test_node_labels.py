"""Labels that are written on Nodes for others to read."""

import pytest

from rollout.errors import UsageError
from rollout.execution.node.marking import labels_when_proven, lasting_labels
from rollout.model.courtesy import CourtesyPolicy
from rollout.planning.selector import is_label_value, node_labels
from tests.planning.builders import NEW, OLD, facts

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"


def test_fluos_labels_say_what_the_host_says_as_far_as_a_label_can_hold_it() -> None:
    rules = CourtesyPolicy(fluo_labels=True)
    assert lasting_labels(rules, facts("w-1")) == {
        FLUO + "id": "flatcar",
        FLUO + "group": "stable",
        FLUO + "version": OLD,
    }
    assert lasting_labels(rules, facts("w-1", running_version="1+2", group="")) == {FLUO + "id": "flatcar"}
    assert labels_when_proven(rules, NEW) == {FLUO + "version": NEW}
    assert not labels_when_proven(rules, "1+2")


@pytest.mark.parametrize("value", ["", "a", "a.b_c-9", "x" * 63])
def test_a_value(value: str) -> None:
    assert is_label_value(value)
    assert node_labels((f"example.com/a={value}",)) == {"example.com/a": value}


@pytest.mark.parametrize("value", [" ", "-a", "a-", "a/b", "ä", "x" * 64, "a=b", "a\n"])
def test_no_value(value: str) -> None:
    assert not is_label_value(value)
    with pytest.raises(UsageError):
        node_labels((f"a={value}",))
