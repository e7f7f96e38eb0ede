"""Evidence that a version works in one cluster, as a document for other clusters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMAT_VERSION = "1.0"
KIND = "node-rollout-evidence"
# For `ssh-keygen -Y`: a signature that was made for another purpose proves nothing.
SIGNATURE_NAMESPACE = "evidence@node-rollout.dev"


@dataclass(frozen=True, slots=True)
class ProvingCluster:
    """The cluster of the evidence: the UID of its kube-system namespace, and its name."""

    uid: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The document. Times are RFC 3339 in UTC, by the API server's clock of that cluster.

    `nodes` rebooted into the version, were proven, and are Ready at `made_at`. `failed` says what
    is wrong with other nodes of the version. `hours` is the time from the last reboot to `made_at`.
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
    """What evidence must show. `cluster` is a name or UID, `max_age` is in seconds."""

    cluster: str
    nodes: int
    hours: int
    max_age: float
