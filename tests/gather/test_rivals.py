"""Other reboot coordinators, found over a real wire whatever they are called."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.rivals import DAEMON_SETS, DEPLOYMENTS, read_coordinators
from rollout.gather.cluster.snapshot import console_command, read_diagnosis
from rollout.model.progress import NodeCondition
from rollout.model.rivals import TRIGGERS, Coordinator, LockAnnotation
from tests.scripted_api import Exchange, Kubeconfig, scripted

Json = dict[str, Any]


LOCK = "weave.works/kured-node-lock"


HELD = {
    "nodeID": "worker-3",
    "metadata": {"unschedulable": False},
    "created": "2026-01-01T00:00:00Z",
    "TTL": 0,
}


def workload(
    name: str, *, image: str = "pause:3", labels: Json | None = None, **spec: object
) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "metadata": {"name": name, "namespace": "ops", "labels": labels or {}},
        "spec": {"template": template, **spec},
    }


def locked(lock: object, key: str = LOCK, name: str = "kured") -> Json:
    found = workload(name)
    found["metadata"]["annotations"] = {key: lock if isinstance(lock, str) else json.dumps(lock)}
    return found


def ours(name: str, *, image: str) -> Json:
    """A FleetLock server of this program, of whatever name and image."""
    made = workload(name, image=image)
    made["spec"]["template"]["spec"]["containers"][0]["args"] = [
        "fleetlock",
        "serve",
        "--listen",
        ":9090",
    ]
    return made


def found(
    tmp_path: Path,
    *,
    deployments: tuple[Json, ...] = (),
    daemon_sets: tuple[Json, ...] = (),
    triggers: int | None = None,
) -> tuple[tuple[Coordinator, ...], tuple[str, ...]]:
    lists: dict[str, object] = {DEPLOYMENTS: deployments, DAEMON_SETS: daemon_sets}

    def answer(exchange: Exchange) -> None:
        path = exchange.split.path
        is_trigger = path in [resource.path for resource in TRIGGERS.values()]
        if is_trigger and triggers is None:
            exchange.json(
                {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}, 404
            )
        elif is_trigger:
            items = [{"metadata": {"name": "os"}}] * (triggers or 0)
            exchange.json({"metadata": {}, "items": items})
        else:
            exchange.json({"metadata": {}, "items": lists[path]})

    with scripted(answer) as server:
        return read_coordinators(
            connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        )


@pytest.mark.parametrize(
    ("deployment", "rival"),
    [
        (workload("container-linux-update-operator"), "cluo"),
        (
            workload("updates", image="ghcr.io/flatcar/flatcar-linux-update-operator:v0.10.0"),
            "fluo",
        ),
        (
            workload("updates", image="registry:5000/a/flatcar-linux-update-operator@sha256:0123"),
            "fluo",
        ),
        (
            workload("updates", labels={"app.kubernetes.io/name": "flatcar-linux-update-operator"}),
            "fluo",
        ),
        (workload("reboots", image="jamiehannaford/reboot-controller"), "cro"),
        (workload("reboots", image="jasonn3/kubernetes_reboot_manager:latest"), "krm"),
        (workload("locks", image="quay.io/coreos/airlock:main"), "fleetlock"),
        (workload("machine-config-operator", labels={"k8s-app": "machine-config-operator"}), "mco"),
        (
            workload(
                "updates", image="public.ecr.aws/bottlerocket/bottlerocket-update-operator:v1.4.0"
            ),
            "brupop",
        ),
        (
            workload(
                "brupop-apiserver",
                image="public.ecr.aws/bottlerocket/bottlerocket-update-operator:v1.4.0",
            ),
            None,
        ),
        (workload("home-tuppr", labels={"app.kubernetes.io/name": "tuppr"}), "tuppr"),
        (
            workload(
                "bootc-operator-controller-manager",
                image="ghcr.io/bootc-dev/bootc-operator:latest",
                labels={"app.kubernetes.io/name": "bootc-operator"},
            ),
            "bootc-operator",
        ),
        (
            workload(
                "operator-kairos-operator",
                image="quay.io/kairos/operator:v0.1.2@sha256:0123",
                labels={"app.kubernetes.io/name": "kairos-operator"},
            ),
            "kairos-operator",
        ),
        (
            workload(
                "gpu-skyhook-operator-controller-manager",
                image="nvcr.io/nvidia/skyhook/operator:v0.15.0",
                labels={"app.kubernetes.io/name": "skyhook-operator"},
            ),
            "nodewright",
        ),
        (
            workload(
                "fault-remediation", image="ghcr.io/nvidia/nvsentinel/fault-remediation:v1.31.0"
            ),
            "nvsentinel",
        ),
        (workload("fault-quarantine", image="ghcr.io/nvidia/nvsentinel/fault-quarantine:1"), None),
        (workload("airlock", image="airlock/microgateway:4"), None),
        (workload("fleetlock", labels={"app.kubernetes.io/name": "node-rollout"}), None),
        (ours("fleetlock", image="registry:5000/ops/tools:1"), None),
        (workload("flatcar-linux-update-operator", replicas=0), None),
        ({"metadata": {"name": "odd"}}, None),
    ],
)
def test_operators_are_known_by_name_label_or_image(
    deployment: Json, rival: str | None, tmp_path: Path
) -> None:
    coordinators, unseen = found(tmp_path, deployments=(deployment,))
    assert [each.rival for each in coordinators] == ([rival] if rival else [])
    assert unseen == ()


@pytest.mark.parametrize(("triggers", "is_rival"), [(None, False), (0, False), (1, True)])
@pytest.mark.parametrize(
    ("deployment", "rival"),
    [
        (
            workload("cattle-upgrades", image="rancher/system-upgrade-controller:v0.13.4"),
            "system-upgrade-controller",
        ),
        (
            workload("network-operator-maintenance", image="ghcr.io/mellanox/maintenance-operator"),
            "maintenance-operator",
        ),
        (
            workload(
                "node-maintenance-operator-controller-manager",
                image="quay.io/medik8s/node-maintenance-operator:latest",
            ),
            "node-maintenance-operator",
        ),
        (
            workload("nmo", image="ghcr.io/nils-svensson/node-maintenance-orchestrator:v0.1.0"),
            "node-maintenance-orchestrator",
        ),
    ],
)
def test_what_waits_for_a_trigger_is_a_rival_if_it_has_one(
    deployment: Json, rival: str, triggers: int | None, *, is_rival: bool, tmp_path: Path
) -> None:
    coordinators, _unseen = found(tmp_path, deployments=(deployment,), triggers=triggers)
    assert [each.rival for each in coordinators] == ([rival] if is_rival else [])


def scheduled(number: int, *, generation: int = 2, observed: int = 2) -> Json:
    kured = workload("kured")
    kured["metadata"]["generation"] = generation
    kured["status"] = {"desiredNumberScheduled": number, "observedGeneration": observed}
    return kured


@pytest.mark.parametrize(
    ("daemon_set", "is_rival"),
    [
        (workload("prod-kured", labels={"app.kubernetes.io/name": "kured"}), True),
        (workload("reboots", image="ghcr.io/kubereboot/kured:1.16.0"), True),
        (locked(HELD, key="acme.example/kured-node-lock", name="reboots"), True),
        (workload("kured-exporter", image="kured-exporter:1"), False),
        (
            workload(
                "flatcar-linux-update-agent", image="ghcr.io/flatcar/flatcar-linux-update-operator"
            ),
            False,
        ),
        (scheduled(0), False),
        (scheduled(0, observed=1), True),
    ],
)
def test_kured_is_known_by_name_label_image_or_lock_unless_it_runs_nowhere(
    daemon_set: Json, *, is_rival: bool, tmp_path: Path
) -> None:
    coordinators, _unseen = found(tmp_path, daemon_sets=(daemon_set,))
    assert [each.rival for each in coordinators] == (["kured"] if is_rival else [])


@pytest.mark.parametrize(
    ("lock", "holders", "for_good"),
    [
        ({}, (), False),
        ("", (), False),
        ("no json", (), False),
        (HELD, ("worker-3",), True),
        ({**HELD, "TTL": 3_600_000_000_000}, ("worker-3",), False),
        ({"maxOwners": 2, "locks": [HELD]}, ("worker-3",), False),
        (
            {"maxOwners": 2, "locks": [HELD, {**HELD, "nodeID": "worker-4"}]},
            ("worker-3", "worker-4"),
            True,
        ),
    ],
)
def test_the_holders_of_kureds_lock_are_read_in_both_its_forms(
    lock: object, holders: tuple[str, ...], *, for_good: bool, tmp_path: Path
) -> None:
    (coordinator,), _unseen = found(tmp_path, daemon_sets=(locked(lock),))
    assert coordinator.holders == holders
    assert coordinator.locked == for_good


def kured(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    annotations: Mapping[str, object] | None = None,
) -> Json:
    """A kured with these flags and annotations."""
    made = workload("kured")
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["/usr/bin/kured"]
    container["args"] = list(arguments)
    container["env"] = [{"name": name, "value": value} for name, value in (env or {}).items()]
    made["metadata"]["annotations"] = {
        name: json.dumps(value) for name, value in (annotations or {}).items()
    }
    return made


OWN = "acme.example/reboot-lock"


@pytest.mark.parametrize(
    ("arguments", "env", "lock"),
    [
        ((), {}, LockAnnotation(LOCK)),
        ((f"--lock-annotation={OWN}",), {}, LockAnnotation(OWN)),
        (("--lock-annotation", OWN, "--period=1h"), {}, LockAnnotation(OWN)),
        ((), {"KURED_LOCK_ANNOTATION": OWN}, LockAnnotation(OWN)),
        (("--concurrency=3",), {}, LockAnnotation(LOCK, 3)),
        (("--concurrency=0",), {}, LockAnnotation(LOCK)),
        (("--concurrency=" + "9" * 5000,), {}, None),
        (("--lock-ttl=0s",), {}, LockAnnotation(LOCK)),
        (("--lock-ttl=30m",), {}, None),
    ],
)
def test_the_lock_of_kured_is_the_one_that_its_flags_name(
    arguments: tuple[str, ...],
    env: Mapping[str, str],
    lock: LockAnnotation | None,
    tmp_path: Path,
) -> None:
    (coordinator,), _unseen = found(tmp_path, daemon_sets=(kured(*arguments, env=env),))
    assert coordinator.lock == lock


def test_only_the_lock_that_kured_reads_counts(tmp_path: Path) -> None:
    locks = {OWN: HELD, LOCK: {}}
    own = kured(f"--lock-annotation={OWN}", annotations=locks)
    (coordinator,), _unseen = found(tmp_path, daemon_sets=(own,))
    assert coordinator.locked
    (coordinator,), _unseen = found(tmp_path, daemon_sets=(kured(annotations=locks),))
    assert not coordinator.locked


@pytest.mark.parametrize("flag", ["--concurrency=2", "--lock-ttl=1h"])
def test_a_lock_for_one_node_does_not_pause_a_kured_with_other_rules(
    flag: str, tmp_path: Path
) -> None:
    held = kured(flag, annotations={LOCK: HELD})
    (coordinator,), _unseen = found(tmp_path, daemon_sets=(held,))
    assert coordinator.holders == ("worker-3",)
    assert not coordinator.locked


def test_what_may_not_be_seen_is_told_and_the_rest_is_looked_for(tmp_path: Path) -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.split.path == DEPLOYMENTS:
            exchange.json(
                {"kind": "Status", "status": "Failure", "code": 403, "message": "no, you may not"},
                403,
            )
        else:
            exchange.json({"metadata": {}, "items": [workload("kured")]})

    with scripted(answer) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        coordinators, unseen = read_coordinators(api)
    assert [each.rival for each in coordinators] == ["kured"]
    assert "no, you may not" in unseen[0]


# What a Node tells when something is wrong with it, over a real wire.


AZURE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n"


WELL = [
    {"type": "MemoryPressure", "status": "False"},
    {"type": "Ready", "status": "True"},
    {"type": "EtcdIsVoter", "status": "True"},
    {"type": "KernelDeadlock", "status": "False"},
]


ILL = [
    {
        "type": "MemoryPressure",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "silent",
    },
    {"type": "DiskPressure", "status": "True", "lastTransitionTime": "2026-03-04T05:06:07Z"},
    {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"},
    {
        "type": "Ready",
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "PLEG is not healthy",
    },
    {"type": "SomebodysOwn", "status": "True"},
]


@pytest.mark.parametrize(
    ("node", "conditions"),
    [
        ({}, ()),
        ({"status": {"conditions": WELL}}, ()),
        (
            {"status": {"conditions": ILL}},
            (
                NodeCondition("MemoryPressure", "Unknown", "NodeStatusUnknown", "silent"),
                NodeCondition("DiskPressure", "True", since="2026-03-04T05:06:07Z"),
                NodeCondition("KernelDeadlock", "True", "DockerHung"),
                NodeCondition("Ready", "False", "KubeletNotReady", "PLEG is not healthy"),
            ),
        ),
    ],
)
def test_only_conditions_that_are_not_as_they_should_be(
    node: dict[str, object], conditions: tuple[NodeCondition, ...], tmp_path: Path
) -> None:
    def answer(exchange: Exchange) -> None:
        assert exchange.split.path == "/api/v1/nodes/worker-1"
        exchange.json({"kind": "Node", "metadata": {"name": "worker-1"}, **node})

    with scripted(answer) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        assert read_diagnosis(api, "worker-1").conditions == conditions


@pytest.mark.parametrize(
    ("provider_id", "told"),
    [
        ("", ""),
        (
            "aws:///eu-central-1a/i-0abc",
            "aws ec2 get-console-output --latest --output text --instance-id i-0abc",
        ),
        (
            "gce://shop/europe-west1-b/node-7",
            (
                "gcloud compute instances get-serial-port-output node-7 --zone europe-west1-b"
                " --project shop"
            ),
        ),
        (f"azure://{AZURE}", f"az vm boot-diagnostics get-boot-log --ids {AZURE}"),
        ("azure:///subscriptions/s/virtualMachineScaleSets/x/virtualMachines/0", ""),
        ("openstack:///1b2c", "openstack console log show 1b2c"),
        ("openstack:///$(reboot)", "openstack console log show '$(reboot)'"),
        ("hcloud://123", ""),
        ("gce://[", ""),
    ],
)
def test_the_console_of_a_machine_is_told_of_and_nothing_foreign_is_left_unquoted(
    provider_id: str, told: str
) -> None:
    assert console_command(provider_id) == told
