"""Which cluster, and the lock on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import CLUSTER, Flag
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.quantity import Duration


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Which cluster."""

    kubeconfig: Annotated[
        Path | None, Flag(CLUSTER, "Default: $KUBECONFIG, then ~/.kube/config, then the pod's own account.", "FILE")
    ] = None
    context: Annotated[str | None, Flag(CLUSTER, "Context of the kubeconfig. Default: its current one.", "NAME")] = None


@dataclass(frozen=True, slots=True)
class NameOptions:
    """What the cluster is called where a run is told of."""

    cluster_name: Annotated[
        str,
        Flag(
            CLUSTER,
            "What metrics, notifications, reports and history call this cluster. Default: its API server's address.",
            "NAME",
            read=values.one_line,
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class RecordedOptions:
    """Whose runs: those of one cluster, which is not asked."""

    cluster: ClusterOptions
    all_clusters: Annotated[
        bool, Flag(CLUSTER, "Runs on any cluster. Default: those on the context's, told by its address.")
    ] = False


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Where the lock is."""

    lease_namespace: Annotated[
        str,
        Flag(
            CLUSTER,
            "Namespace of the Lease that keeps rollouts from running side by side.",
            "NAMESPACE",
            read=values.namespace,
        ),
    ] = LEASE_NAMESPACE


@dataclass(frozen=True, slots=True)
class LockOptions:
    """How the lock is held."""

    lease_duration: Annotated[
        Duration,
        Flag(
            CLUSTER,
            "How long the Lease goes unrenewed before another process may take it; whole seconds.",
            "DURATION",
            read=values.some_time,
        ),
    ] = Duration(30)
    force_unlock: Annotated[
        str,
        Flag(CLUSTER, "Do not wait for the Lease of this run: you are sure that no process is working on it.", "RUN"),
    ] = ""

    @property
    def seconds(self) -> int:
        """The Lease's duration as it stands in the Lease."""
        return max(1, round(self.lease_duration))
