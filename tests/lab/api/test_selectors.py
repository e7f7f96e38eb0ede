import pytest

from rollout.lab.api.selectors import matches_labels, parse_labels
from rollout.lab.api.statuses import StatusError


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {}, False),
        ("a==b,c=d", {"a": "b", "c": "d"}, True),
        ("a=b,c=d", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
        ("a=", {"a": ""}, True),
        ("a in (b,c)", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a in (b,)", {"a": ""}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c), d", {"a": "b", "d": ""}, False),
        ("a>3", {"a": "4"}, True),
        ("a>3", {"a": "3"}, False),
        ("a<3", {"a": "x"}, False),
        ("node-role.kubernetes.io/control-plane=", {"node-role.kubernetes.io/control-plane": ""}, True),
    ],
)
def test_labels(selector: str, labels: dict[str, str], *, matches: bool) -> None:
    assert matches_labels(parse_labels(selector), {"metadata": {"labels": labels}}) is matches


@pytest.mark.parametrize(
    "selector", ["a===b", "a=b c", "a in b", ",", "a,", "!a=b", "a>x", "A/b/c=d", "-a=b", "a in (x"]
)
def test_broken_labels(selector: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_labels(selector)
    assert refused.value.code == 400


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "a", "hostNetwork": True},
    "status": {"phase": "Running"},
}
