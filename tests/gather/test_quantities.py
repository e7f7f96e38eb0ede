import json
from typing import Any

import pytest

from rollout.gather.cluster.demands import parse_quantity, read_placement, round_up
from rollout.model.cluster import LabelSelector
from rollout.model.placement import ANYWHERE, NodeTerm, Placement, PodTerm, Spread, Toleration
from rollout.model.selectors import Requirement, SelectorOperator


@pytest.mark.parametrize(
    ("text", "cpu"),
    [("100m", 100), ("1", 1000), (".5", 500), ("100u", 1), ("1500000n", 2), ("2k", 2_000_000)],
)
def test_cpu_in_thousandths_of_a_core_rounded_up(text: str, cpu: int) -> None:
    assert round_up(text, 1000) == cpu


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("128974848", 128_974_848),
        ("2Gi", 2 << 30),
        ("129M", 129_000_000),
        ("1e3", 1000),
        ("5e-1", 1),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("128974848000m", 128_974_848),
    ],
)
def test_whole_units(text: str, number: int) -> None:
    assert round_up(text) == number


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1e", "0x10", "\u0661", "1gi", "9" * 6000, "1e9999", "1e-999999999"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


# What a pod demands of its place, as manifests write it.


Json = dict[str, Any]


WEB: Json = {"matchLabels": {"app": "web"}}


SELECTS_WEB = LabelSelector((Requirement("app", SelectorOperator.IN, ("web",)),))


ZONE = "topology.kubernetes.io/zone"


Parts = list[Json] | None


def read(
    affinity: Json | None = None, tolerations: Parts = None, spreads: Parts = None
) -> Placement:
    return read_placement(*(written(part) for part in (affinity, tolerations, spreads)))


def written(part: Json | Parts) -> bytes:
    return b"" if part is None else json.dumps(part).encode()


def required(kind: str, *terms: Json) -> Json:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {}),
        ({"namespaces": ["a", "b"]}, {"namespaces": ("a", "b")}),
        ({"namespaceSelector": {}}, {"namespace_selector": LabelSelector()}),
        (
            {"namespaceSelector": WEB, "namespaces": ["a"]},
            {"namespace_selector": SELECTS_WEB, "namespaces": ("a",)},
        ),
        ({"matchLabelKeys": ["hash"]}, {"match_keys": ("hash",)}),
        ({"mismatchLabelKeys": ["hash"]}, {"mismatch_keys": ("hash",)}),
    ],
)
def test_terms_of_both_affinities(more: Json, expected: Json) -> None:
    term = {"topologyKey": ZONE, "labelSelector": WEB, **more}
    assert read(required("podAntiAffinity", term)).repulsions == (
        PodTerm(ZONE, SELECTS_WEB, **expected),
    )
    assert read(required("podAffinity", term)).attractions == (
        PodTerm(ZONE, SELECTS_WEB, **expected),
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {}),
        ({"matchLabelKeys": ["pod-template-hash"]}, {"match_keys": ("pod-template-hash",)}),
        ({"minDomains": 3}, {"min_domains": 3}),
        ({"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}, {}),
        ({"nodeAffinityPolicy": "Ignore"}, {"ignores_affinity": True}),
        ({"nodeTaintsPolicy": "Honor"}, {"heeds_taints": True}),
    ],
)
def test_strict_spreads(more: Json, expected: Json) -> None:
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 2,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        **more,
    }
    assert read(spreads=[spread]).spreads == (Spread(ZONE, 2, SELECTS_WEB, **expected),)
    assert read(spreads=[{**spread, "whenUnsatisfiable": "ScheduleAnyway"}]) is ANYWHERE


def test_node_affinity_and_tolerations() -> None:
    terms = [
        {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["4"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w-1"]}]},
    ]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
    found = read(affinity, [{"operator": "Exists"}, {"key": "gpu", "effect": "NoSchedule"}])
    assert found.node_terms == (
        NodeTerm(labels=(Requirement("cpu", SelectorOperator.GREATER, ("4",)),)),
        NodeTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("w-1",)),)),
    )
    assert found.tolerations == (
        Toleration(operator="Exists"),
        Toleration("gpu", effect="NoSchedule"),
    )


def test_what_is_not_as_documented_is_refused() -> None:
    odd = {"matchExpressions": [{"key": "app", "operator": "Sometimes"}]}
    with pytest.raises(ValueError, match="Sometimes"):
        read(required("podAffinity", {"topologyKey": ZONE, "labelSelector": odd}))
