"""What a rollout has proved of a version in one cluster, as a document that another cluster goes by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMAT_VERSION = "1.0"
KIND = "node-rollout-evidence"
SIGNATURE_NAMESPACE = "evidence@node-rollout.dev"
"""What the signature is for, as `ssh-keygen -Y` has it: one that was made for something else proves nothing."""


@dataclass(frozen=True, slots=True)
class ProvingCluster:
    """Where it was proved: the UID of its kube-system namespace, and what its operators call it."""

    uid: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The document. Times are RFC 3339 in UTC, by the API server's clock of that cluster.

    `nodes` were rebooted into the version, proven, and are Ready with it when this is made;
    `failed` says of others of the version what is wrong. `hours` are those from the last reboot to
    `made_at`.
    """

    version: str
    cluster: ProvingCluster
    made_at: str
    nodes: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    first_reboot: str = ""
    last_reboot: str = ""
    hours: float = 0.0
    format_version: str = FORMAT_VERSION
    kind: str = KIND


@dataclass(frozen=True, slots=True)
class EvidenceRules:
    """What is asked of it: the cluster by name or UID, how many nodes, for how many hours, and how old it may be."""

    cluster: str
    nodes: int
    hours: int
    max_age: float
