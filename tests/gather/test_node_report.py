"""What a Node tells when something is wrong with it, over a real wire."""

from pathlib import Path

import pytest

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.node_report import console, read_report
from rollout.model.progress import NodeCondition
from tests.scripted_api import Exchange, Kubeconfig, scripted

AZURE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n"
WELL = [
    {"type": "MemoryPressure", "status": "False"},
    {"type": "Ready", "status": "True"},
    {"type": "EtcdIsVoter", "status": "True"},
    {"type": "KernelDeadlock", "status": "False"},
]
ILL = [
    {"type": "MemoryPressure", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent"},
    {"type": "DiskPressure", "status": "True", "lastTransitionTime": "2026-03-04T05:06:07Z"},
    {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"},
    {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "PLEG is not healthy"},
    {"type": "SomebodysOwn", "status": "True"},
]


@pytest.mark.parametrize(
    ("node", "conditions"),
    [
        ({}, ()),
        ({"spec": None, "status": {"conditions": None}}, ()),
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
        assert read_report(api, "worker-1").conditions == conditions


@pytest.mark.parametrize(
    ("provider_id", "told"),
    [
        ("", ""),
        ("aws://", ""),
        ("no-id", ""),
        (
            "aws:///eu-central-1a/i-0abc",
            "aws ec2 get-console-output --latest --output text --instance-id i-0abc",
        ),
        (
            "gce://shop/europe-west1-b/node-7",
            "gcloud compute instances get-serial-port-output node-7 --zone europe-west1-b --project shop",
        ),
        (f"azure://{AZURE}", f"az vm boot-diagnostics get-boot-log --ids {AZURE}"),
        ("azure:///subscriptions/s/virtualMachineScaleSets/x/virtualMachines/0", ""),
        ("openstack:///1b2c", "openstack console log show 1b2c"),
        ("openstack://region/1b2c", "openstack console log show 1b2c"),
        ("openstack:///$(reboot)", "openstack console log show '$(reboot)'"),
        ("hcloud://123", ""),
        ("gce://[", ""),
    ],
)
def test_the_console_of_a_machine_is_told_of_and_nothing_foreign_is_left_unquoted(provider_id: str, told: str) -> None:
    assert console(provider_id) == told
