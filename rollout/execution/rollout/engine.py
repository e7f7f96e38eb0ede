from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from rollout.execution.base.deadline import GracefulStop, Guard, PatientApi
from rollout.execution.base.gate_ports import NodePlaybooks, Rescue
from rollout.execution.base.reporting import Reporter
from rollout.execution.drain.task import Precedence
from rollout.execution.gates import PolicyGates
from rollout.execution.node.conditions import NodeConditions
from rollout.execution.node.context import HostAccess, NodeContext
from rollout.execution.node.steps import Step, process_node
from rollout.execution.record.memory import RunMemory
from rollout.execution.rollout.health_monitor import HealthMonitor
from rollout.execution.rollout.ledger import Ledger
from rollout.model.cluster import Node
from rollout.model.finding import ControllerMoving, Finding
from rollout.model.own_node import OwnNode
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.progress import NodeResult, Phase
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.memory import NodeEnd
from rollout.planning.eligibility.pools import pools_of


class Engine(Struct, frozen=True, kw_only=True):
    """The `NodeEngine` of all threads of a plan."""

    plan: RolloutPlan
    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    stop: GracefulStop
    gates: PolicyGates
    memory: RunMemory
    ledger: Ledger
    health_monitor: HealthMonitor
    conditions: NodeConditions
    away_limit_of: Callable[[Collection[Node]], AwayLimit]
    why_none_starts: Callable[[], Finding | None]
    precedence: Precedence = field(default_factory=Precedence)
    moved_pods: set[str] = field(default_factory=set)

    def run_node(
        self,
        planned: PlannedNode,
        host: HostAccess,
        steps: Mapping[Phase, Step],
        *,
        taken_up_run_id: str | None,
        own_node: OwnNode | None = None,
    ) -> NodeResult:
        """`steps` has a step for each phase but the last.

        `taken_up_run_id` is in an earlier process's marks. This process runs on `own_node`.
        """
        is_taken_up = taken_up_run_id is not None
        is_own_node = own_node is not None and own_node.name == planned.name
        context = NodeContext(
            planned=planned,
            run_id=taken_up_run_id or self.plan.plan_id,
            cluster=self.cluster,
            check_may_act=self.check_may_act,
            report=self.report,
            started=self.cluster.clock.monotonic(),
            policy=pools_of(self.plan.policy).rules(planned.pool),
            precedence=self.precedence,
            moved_pods=self.moved_pods,
            engine=self,
            host=host,
            started_by_earlier_process=is_taken_up,
            own_node=own_node if is_own_node else None,
        )
        result = process_node(context, steps)
        # An earlier process may have set conditions.
        may_have_conditions = self.conditions.sets_conditions or is_taken_up
        # A refused node waits again, so it keeps MaintenancePlanned.
        if may_have_conditions and not result.is_refused:
            self.conditions.remove(planned.name)
        return result

    @property
    def playbooks(self) -> NodePlaybooks | None:
        return self.gates.ports.playbooks

    @property
    def rescue(self) -> Rescue | None:
        return self.gates.ports.rescue

    def run_gate_command(self, context: NodeContext) -> None:
        self.gates.run_command_for_node(context)

    def is_window_closed(self, planned: PlannedNode) -> bool:
        return self.gates.is_window_closed(planned)

    def why_not_to_cordon(self, planned: PlannedNode) -> Finding | None:
        # The gates may be slow.
        return self.gates.ask_before_cordon(planned) or self.why_none_starts()

    def find_busy_controller(self, name: str, nodes: Iterable[Node]) -> ControllerMoving | None:
        return self.gates.find_busy_controller(name, nodes)

    def set_phase_conditions(self, name: str, phase: Phase) -> None:
        self.conditions.set_phase_conditions(name, phase)

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        return self.memory.objection_to_version(planned, version)

    def remember(self, planned: PlannedNode, end: NodeEnd) -> None:
        self.memory.note_end(planned, end)
