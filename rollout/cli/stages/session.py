"""What a command works with: one value from its settings to the engine, and what is gathered and planned by it."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rollout.cli import wiring
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import selection_of
from rollout.cli.stages.observers import News
from rollout.execution.gates import GatePorts
from rollout.execution.lease import LeaseWatch
from rollout.execution.rollout.ledger import Inheritance
from rollout.gather.hosts.probe_command import Probe
from rollout.model.cluster import Node
from rollout.model.host import Host, HostObservation
from rollout.model.own_node import OwnNode
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy, Selection
from rollout.planning.eligibility.evidence import Proven
from rollout.ports import ClusterApi, HostExecutor

if TYPE_CHECKING:
    from rollout.report.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of a command, what they mean, and the connections; made once, and handed down.

    `selection` and `policy` are what the settings say, or the `saved` plan, or the rollout that is gone on with; that
    plan's file is `saved_in`.
    `metrics` measure what is done; `news` is what notifications told before; `watch` is what was seen
    of the lock before there was a plan, and `force_unlock` the run whose Lease is not waited for. `operating`: nobody
    watches, or has decided to try failed nodes again. `proven` is what another cluster has proved of versions, None
    where it need not. `process` is a word that no other process has.
    """

    settings: Given
    selection: Selection
    policy: Policy
    api: ClusterApi
    shell: HostExecutor
    saved: RolloutPlan | None = None
    saved_in: str = ""
    gates: GatePorts | None = None
    metrics: "Metrics | None" = None
    news: News | None = None
    watch: LeaseWatch | None = None
    operating: bool = False
    proven: Proven | None = None
    force_unlock: str = ""
    process: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def namespace(self) -> str:
        """Where lock, record and memory stand."""
        return self.settings.lock.namespace

    @property
    def as_json(self) -> bool:
        """Whether programs read what is printed."""
        return self.settings.output.as_json

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return self.settings.output.width

    @property
    def probe(self) -> Probe:
        """What each host is asked."""
        return Probe(self.policy.detect, self.settings.detect.command)

    @property
    def place(self) -> str:
        """Which cluster: what the operator calls it, with its address."""
        name = self.settings.cluster.name or wiring.context_of(self.settings)
        return f"{name} ({self.api.server})" if name else self.api.server


def connect(settings: Given, policy: Policy | None = None) -> Session:
    """Make the adapters."""
    api = wiring.cluster_api(settings)
    return Session(settings, selection_of(settings), policy or Policy(), api, wiring.host_shell(settings.ssh))


@dataclass(frozen=True, slots=True)
class Targets:
    """What a command works on. `selected` are names before `--exclude`; `meant`, hosts and observations are after.

    `own_node` is the node under this process, where it runs in a pod of this cluster.
    """

    selected: tuple[str, ...]
    meant: tuple[str, ...]
    hosts: Mapping[str, Host]
    observations: Mapping[str, HostObservation]
    own_node: OwnNode | None = None

    def among(self, nodes: Iterable[Node]) -> list[Node]:
        """Return those of these nodes that are meant."""
        names = frozenset(self.meant)
        return [node for node in nodes if node.name in names]


@dataclass(frozen=True, slots=True)
class Run:
    """A plan, and all it takes to run it.

    `selected` is the number of nodes that percentages are of.
    `inherited` is what an earlier process has left of it, None for a new run.
    """

    session: Session
    plan: RolloutPlan
    targets: Targets
    selected: int
    inherited: Inheritance | None = None

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The planned nodes' hosts."""
        return {node.name: self.targets.hosts[node.name] for node in self.plan.nodes}

    @property
    def deferred(self) -> bool:
        """Whether the node under this process is left for a run from elsewhere, and to be marked so."""
        return any(left.reason is ExclusionReason.DEFERRED for left in self.plan.excluded)
