"""The roles that are printed are enough, and no right of them is wider than what is used.

The attack: whoever gets hold of the program's account may do what its roles allow. A cluster-wide right to write
ConfigMaps is a way to cluster-admin. The rule: the Lease and the ConfigMap are written in one namespace and by name,
Events in `default`; access reviews ask for just that, so that rights limited to it are found sufficient, and each that
is missing is named before anything is touched. Played by the lab's API server, which judges by the very roles.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.gather.cluster.rights import apply_rights
from rollout.lab.api.access import Denial, Grant, grants_of
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.manifests.installation import Access
from rollout.manifests.roles import roles
from tests.conftest import StartLab
from tests.ended import Ended, invoked

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "cli" / "tiny.yaml")
Run = Callable[..., Ended]


def printed() -> tuple[dict[str, Any], ...]:
    return roles(Access())


def grant(lab: Lab, grants: Iterable[Grant]) -> None:
    lab.call(lambda: setattr(lab.api.access, "grants", tuple(grants)))


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    lab = start_lab(load_scenario(TINY))
    grant(lab, grants_of(printed()))
    return lab


@pytest.fixture
def run(lab: Lab, tmp_path: Path) -> Run:
    return lambda *arguments: invoked(tmp_path, lab.environment, arguments)


def rights(ended: Ended, verdict: str) -> list[str]:
    checks = json.loads(ended.stdout)["checks"]
    return [check["subject"] for check in checks if check["check"] == "right" and check["verdict"] == verdict]


def test_a_rollout_works_with_the_printed_roles_alone(lab: Lab, run: Run) -> None:
    doctor = run("doctor", "-o", "json")
    assert doctor.code == ExitCode.OK, doctor.stdout
    assert rights(doctor, "pass") == [str(right) for right in apply_rights("kube-system")]
    applied = run("apply", "--yes", "-o", "json")
    assert applied.code == ExitCode.OK, applied.stderr
    assert len(applied.summary["succeeded"]) == 3
    asked = lab.call(lambda: list(lab.requests))
    assert not [record.path for record in asked if record.status == 403]
    assert any(record.target.plural == "events" for record in asked)


def test_no_rule_of_them_writes_everywhere() -> None:
    (cluster_role,) = (role for role in printed() if role["kind"] == "ClusterRole")
    writing = {"create", "update", "patch", "delete"}
    wide = {res for rule in cluster_role["rules"] if writing & {*rule["verbs"]} for res in rule["resources"]}
    assert wide == {"nodes", "pods/eviction"}
    for role in (role for role in printed() if role["kind"] == "Role"):
        for rule in role["rules"]:
            named = rule.get("resourceNames") in (["node-rollout"], ["node-rollout-memory"], ["node-rollout-fleetlock"])
            assert named or rule["verbs"] == ["create"] or rule["resources"] == ["events"]


@pytest.mark.parametrize(
    ("denial", "missing", "verdict"),
    [
        (Denial("update", "configmaps", "kube-system", "node-rollout"), "update configmaps node-rollout", "fail"),
        (Denial("create", "leases", "kube-system"), "create leases.coordination.k8s.io", "fail"),
        (Denial("patch", "events", "default"), "patch events", "warn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_doctor_names_what_is_missing(denial: Denial, missing: str, verdict: str, lab: Lab, run: Run) -> None:
    lab.call(lambda: lab.api.access.denials.add(denial))
    doctor = run("doctor", "-o", "json")
    assert doctor.code == (ExitCode.ERROR if verdict == "fail" else ExitCode.OK)
    (subject,) = rights(doctor, verdict)
    assert subject == f"{missing} in namespace {denial.namespace}"
