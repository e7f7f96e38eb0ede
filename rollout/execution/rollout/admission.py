"""What admits a node of a rollout: which nodes use up the limit, and what is asked once more before its cordon."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.gates.gates import Gates
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.progress import Phase
from rollout.planning.away import AwayLimit, is_away


class Away:
    """Those that count as away, in the hands of whatever rollout.

    `runs` are this rollout's own, with those that it goes on with: another that has nodes in flight holds a lock that
    this one cannot see.
    """

    def __init__(self, cluster: PatientApi, runs: Container[str], report: Reporter) -> None:
        self._cluster = cluster
        self._runs = runs
        self._report = report
        self._told: set[str] = set()

    def __call__(self) -> frozenset[str]:
        """Their names; of each other rollout is told once."""
        nodes = self._cluster.ask(read_nodes)
        others = {node.name: node.annotations[marks.RUN] for node in nodes if self._is_anothers(node)}
        for name, run in others.items():
            if run not in self._told:
                self._told.add(run)
                self._report.notice(
                    f"warning: the rollout {run} has {name} in flight, under a lock in another lock.namespace: its "
                    "nodes count as unavailable here. Give every command the same lock.namespace"
                )
        return frozenset(node.name for node in nodes if is_away(node))

    def _is_anothers(self, node: Node) -> bool:
        run = node.annotations.get(marks.RUN)
        return bool(run) and run not in self._runs and node.annotations.get(marks.PHASE) != Phase.FAILED


@dataclass(frozen=True, slots=True)
class RunAdmission:
    """The gates, the reasons why no further node may begin, and the limit; percentages are of `selected` nodes."""

    plan: RolloutPlan
    selected: int
    gates: Gates
    reason_to_stop: Callable[[], str]

    def refusal(self, planned: PlannedNode) -> str:
        """Why a node may not be begun now; the gates first, which may be slow."""
        return self.gates.refusal(planned) or self.reason_to_stop()

    def limit(self, nodes: Iterable[Node]) -> AwayLimit:
        """How many of these may be away."""
        return AwayLimit.of(self.plan, self.selected, nodes)
