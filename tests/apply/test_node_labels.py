"""Labels that others read: there during a turn, settled after it, put back where nothing came of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.api.store import Json
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario
from tests.apply.conftest import Rollout, command
from tests.apply.test_courtesy import ALONE, NODE, NUMBER, ORDINARY, heard

FLUO = "flatcar-linux-update.v1.flatcar-linux.net/"
Started = Callable[[Scenario | str, int], Lab]
LABELS = ("--set", "labels.pre-reboot=maintenance=true,team=", "--set", "labels.post-reboot=maintenance=false")
WAITING = (*LABELS, "--set", "reboot.delay=1h")


@pytest.fixture
def lab(started: Started) -> Lab:
    return started(str(ORDINARY), NUMBER)


def node_of(lab: Lab) -> Json:
    node = lab.store.get(NODES, NODE)
    assert node is not None
    return node


def metadata(lab: Lab, kind: str) -> Mapping[str, str]:
    return {**(node_of(lab)["metadata"].get(kind) or {})}


def write(lab: Lab, kind: str, **values: str) -> None:
    def change() -> None:
        node = node_of(lab)
        wanted = {**(node["metadata"].get(kind) or {}), **values}
        lab.store.put(NODES, {**node, "metadata": {**node["metadata"], kind: wanted}})

    lab.call(change)


def run_of(lab: Lab) -> str:
    lease = lab.store.get(LEASES, "node-rollout", "kube-system")
    assert lease is not None
    run: str = lease["metadata"]["annotations"]["node-rollout.dev/run"]
    return run


def of_fluo(values: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(FLUO): value for name, value in values.items() if name.startswith(FLUO)}


def test_labels_stand_from_the_cordon_on_and_others_from_the_end_on(lab: Lab, rollout: Rollout, tmp_path: Path) -> None:
    process = command(lab, tmp_path, "apply", *ALONE, *LABELS, "--set", "reboot.delay=2s")
    heard(process, "before its reboot")
    during = metadata(lab, "labels")
    assert (during["maintenance"], during["team"]) == ("true", "")
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    after = metadata(lab, "labels")
    assert (after["maintenance"], "team" in after) == ("false", False)
    assert lab.scoreboard().annotations_left == {}
    assert "label" not in stdout
    again = rollout(lab, "apply", *ALONE, *LABELS, "--allow", "idle")
    assert again.code == 0, again.stderr
    assert ("cordoned", "label maintenance=false is maintenance=true now") in again.steps(NODE)
    assert metadata(lab, "labels")["maintenance"] == "false"


@pytest.mark.parametrize("way_out", ["abort", "revert"])
def test_what_was_there_before_is_put_back_where_nothing_came_of_it(
    lab: Lab, rollout: Rollout, tmp_path: Path, way_out: str
) -> None:
    write(lab, "labels", maintenance="never")
    labels, annotations = metadata(lab, "labels"), metadata(lab, "annotations")
    process = command(lab, tmp_path, "apply", *ALONE, *WAITING, "--set", "waves.stop=revert")
    heard(process, "before its reboot")
    assert metadata(lab, "labels")["maintenance"] == "true"
    if way_out == "abort":
        process.kill()
        process.communicate()
        assert rollout(lab, "abort", "--yes", "--force-unlock", run_of(lab)).code == 0
    else:
        process.terminate()
        process.communicate(timeout=60)
    assert metadata(lab, "labels") == labels
    left = metadata(lab, "annotations")
    assert {name: left[name] for name in left if not name.endswith("last-result")} == annotations


def test_a_node_that_stays_away_keeps_them_until_it_is_given_back(lab: Lab, rollout: Rollout) -> None:
    machine = lab.machines[NODE]
    lab.call(lambda: machine.inflict(HostFaults(reboot=RebootFault.NEVER_RETURNS)))
    failed = rollout(lab, "apply", *ALONE, *LABELS, "--reboot-timeout", "5s")
    assert failed.code == 4, failed.stderr
    assert metadata(lab, "labels")["maintenance"] == "true"
    status = json.loads(rollout(lab, "status", "-o", "json", "--node", NODE).stdout)
    assert not status["nodes"][0]["reason"].startswith("rival")
    lab.call(machine.power_on)
    resumed = rollout(lab, "resume", "--retry-failed", "--yes")
    assert resumed.code == 0, resumed.stderr
    left = metadata(lab, "labels")
    assert (left["maintenance"], "team" in left) == ("false", False)


def test_fluos_labels_are_kept_up_to_date(lab: Lab, tmp_path: Path) -> None:
    process = command(lab, tmp_path, "apply", *ALONE, "--set", "labels.fluo=true", "--set", "reboot.delay=2s")
    heard(process, "before its reboot")
    version = lab.machines[NODE].os_version
    assert of_fluo(metadata(lab, "labels")) == {"id": "flatcar", "group": "stable", "version": version}
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert of_fluo(metadata(lab, "labels")) == {"id": "flatcar", "group": "stable", "version": "4152.2.0"}
    assert not of_fluo(metadata(lab, "annotations"))


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--set", "labels.pre-reboot=maintenance"), "'maintenance' has no value"),
        (("--set", "labels.pre-reboot=a=b c"), "'b c' is not a label's value"),
        (("--set", "labels.post-reboot=a_/b=c"), "is not a"),
        (("--set", f"labels.post-reboot=a={'x' * 64}"), "is not a label's value"),
        (("--set", "labels.pre-reboot=a=b,a=c"), "the label a is to be 'b' and 'c'"),
        (("--set", "labels.pre-reboot=a=b", "--set", "labels.pre-reboot=a=c"), "the label a is to be 'b' and 'c'"),
        (("--set", "labels.pre-reboot=node-rollout.dev/x=y"), "it is rollout's own"),
        (
            ("--set", "labels.pre-reboot=node.kubernetes.io/exclude-from-external-load-balancers="),
            "drain.exclude-from-load-balancers sets it",
        ),
    ],
)
def test_what_cannot_be_is_a_usage_error(lab: Lab, rollout: Rollout, flags: tuple[str, ...], complaint: str) -> None:
    ended = rollout(lab, "plan", *flags)
    assert ended.code == 64, ended.stdout
    assert complaint in " ".join(ended.stderr.split())
