"""What a Node tells when something is wrong with it: its bad conditions, and where its machine's console is."""

from dataclasses import dataclass
from shlex import quote

import msgspec

from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.snapshot import node_path
from rollout.model.progress import NodeCondition
from rollout.ports import ClusterApi

# The kubelet's own conditions, the cloud's, and those of the node-problem-detector as it is shipped. What a condition
# of another party means, nobody but that party knows.
_BAD_WHEN_TRUE = frozenset(
    {
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "FrequentKubeletRestart",
        "FrequentContainerdRestart",
        "FrequentUnregisterNetDevice",
    }
)
_READY = "Ready"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """`conditions` are those that are not as they should be; `console` is empty where it is not known."""

    conditions: tuple[NodeCondition, ...] = ()
    console: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False):
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[wire.Condition, ...] | None = None


class _Node(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec | None = None
    status: _Status | None = None


def read_report(api: ClusterApi, name: str) -> NodeReport:
    """Return the report of one Node; `ApiNotFoundError` where there is none."""
    path = node_path(name)
    read = decode.decode(api.get(path), _Node, path)
    conditions = (read.status.conditions if read.status else None) or ()
    provider = (read.spec.provider_id if read.spec else None) or ""
    return NodeReport(tuple(_condition(condition) for condition in conditions if _is_bad(condition)), console(provider))


def _is_bad(condition: wire.Condition) -> bool:
    if condition.type == _READY:
        return condition.status != "True"
    return condition.type in _BAD_WHEN_TRUE and condition.status != "False"


def _condition(read: wire.Condition) -> NodeCondition:
    since = read.last_transition_time or ""
    return NodeCondition(read.type, read.status, read.reason or "", read.message or "", since)


def console(provider_id: str) -> str:
    """How to see the console of the machine that a providerID names; empty where that is not known.

    The ID comes from the cluster, so whatever of it stands in a command is quoted.
    """
    provider, _, rest = provider_id.partition("://")
    match provider, [piece for piece in rest.split("/") if piece]:
        case _, []:
            return ""
        case "aws", [*_, instance]:
            return f"aws ec2 get-console-output --latest --output text --instance-id {quote(instance)}"
        case "gce", [project, zone, name]:
            place = f"--zone {quote(zone)} --project {quote(project)}"
            return f"gcloud compute instances get-serial-port-output {quote(name)} {place}"
        case "azure", path if "virtualMachineScaleSets" not in path:
            return f"az vm boot-diagnostics get-boot-log --ids {quote('/' + '/'.join(path))}"
        case "openstack", [*_, server]:
            return f"openstack console log show {quote(server)}"
        case _:
            return ""
