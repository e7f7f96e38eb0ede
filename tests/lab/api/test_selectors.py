import pytest

from rollout.lab.api.resources import DEPLOYMENTS, EVENTS, NODES, PODS, Resource
from rollout.lab.api.selectors import matches_fields, matches_labels, parse_fields, parse_labels, selects
from rollout.lab.api.statuses import StatusError
from rollout.lab.api.store import Json


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


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("spec.nodeName=a", True),
        ("spec.nodeName!=a", False),
        ("spec.nodeName=a,status.phase!=Failed,status.phase!=Succeeded", True),
        ("metadata.namespace=n,metadata.name=p", True),
        ("status.podIP=", True),
        ("spec.hostNetwork=true", True),
    ],
)
def test_fields(selector: str, *, matches: bool) -> None:
    assert matches_fields(parse_fields(selector, PODS), POD) is matches


@pytest.mark.parametrize(
    ("resource", "selector"),
    [(PODS, "spec.nothing=a"), (NODES, "metadata.namespace=a"), (DEPLOYMENTS, "spec.replicas=1"), (EVENTS, "rubbish")],
)
def test_unsupported_fields(resource: Resource, selector: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_fields(selector, resource)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "a", "x": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Rubbish"}]}, False),
    ],
)
def test_selector_objects(selector: Json | None, *, selected: bool) -> None:
    assert selects(selector, {"metadata": {"labels": {"app": "a"}}}) is selected
