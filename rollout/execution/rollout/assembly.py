from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from rollout.execution.base.deadline import GracefulStop, PatientApi
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.base.reporting import OutageNotice, Reporter
from rollout.execution.events import NodeEvents
from rollout.execution.gates import PolicyGates
from rollout.execution.lock import LeaseLock, LockOptions
from rollout.execution.node.conditions import NodeConditions
from rollout.execution.node.ssh_host import RolloutHosts
from rollout.execution.node.tainting import Tainting
from rollout.execution.record.memory import RunMemory
from rollout.execution.record.record import RunRecord, record_document
from rollout.execution.rollout.engine import Engine
from rollout.execution.rollout.health_monitor import HealthMonitor
from rollout.execution.rollout.ledger import Ledger
from rollout.execution.rollout.run import Rollout
from rollout.execution.rollout.run_inputs import RunInputs
from rollout.execution.rollout.waves import StopRule
from rollout.model.cluster import Node
from rollout.model.plan import RolloutPlan
from rollout.planning.eligibility.away import AwayLimit
from rollout.planning.eligibility.candidates import requested_nodes
from rollout.ports import Clock, ClusterApi, Observer


class RunPorts(Struct, frozen=True, kw_only=True):
    api: ClusterApi
    hosts: RolloutHosts
    clock: Clock
    gate_ports: GatePorts
    observers: Sequence[Observer]


def assemble_rollout(
    inputs: RunInputs, ports: RunPorts, lock_options: LockOptions, stop: GracefulStop
) -> Rollout:
    return _Assembly(inputs, ports, lock_options, stop).build()


@dataclass
class _Assembly:
    inputs: RunInputs
    ports: RunPorts
    lock_options: LockOptions
    stop: GracefulStop

    def build(self) -> Rollout:
        return Rollout(
            hosts=self.ports.hosts,
            engine=self.engine,
            stop_rule=self.stop_rule,
            lock=self.lock,
            events=self.events,
            record=RunRecord(
                self.cluster,
                record_document(self.lock_options.namespace),
                self.report.notice,
                self.inputs.unattended,
            ),
            tainting=Tainting(self.cluster, self.lock.check, self.report, self.stop),
            is_resumed=self.inputs.is_resumed,
            inherited=self.inputs.inherited,
            holder=self.lock_options.holder,
            own_node=self.inputs.own_node,
            unattended=self.inputs.unattended,
        )

    @property
    def plan(self) -> RolloutPlan:
        return self.inputs.plan

    @property
    def report(self) -> Reporter:
        return self.events.report

    @cached_property
    def events(self) -> NodeEvents:
        return NodeEvents(
            self.ports.api,
            self.plan.plan_id,
            self.plan.nodes,
            observers=self.ports.observers,
            clock=self.ports.clock,
        )

    @cached_property
    def cluster(self) -> PatientApi:
        return PatientApi(self.ports.api, self.ports.clock, OutageNotice(self.report))

    @cached_property
    def lock(self) -> LeaseLock:
        return LeaseLock(
            self.cluster,
            self.lock_options,
            self.plan.plan_id,
            stop=self.stop,
            notice=self.report.notice,
        )

    @cached_property
    def ledger(self) -> Ledger:
        inherited = self.inputs.inherited
        return Ledger(cordoned_before=inherited.left_cordoned, failures_before=inherited.failures)

    @cached_property
    def memory(self) -> RunMemory:
        policy = self.plan.policy
        return RunMemory(
            self.cluster,
            self.lock.check,
            self.report,
            run_id=self.plan.plan_id,
            namespace=self.lock_options.namespace,
            failure_limit=policy.failure_limit(self.inputs.percentage_base),
            include_held=policy.include_held,
            retried=self.inputs.inherited.retried,
            unattended=self.inputs.unattended,
            proven=self.inputs.proven,
        )

    @cached_property
    def stop_rule(self) -> StopRule:
        return StopRule(self.stop, self.ledger, self.memory.failure_limit)

    @cached_property
    def gates(self) -> PolicyGates:
        return PolicyGates(
            self.plan,
            self.cluster,
            self.report,
            stop=self.stop,
            ports=self.ports.gate_ports,
            memory=self.memory,
        )

    @cached_property
    def engine(self) -> Engine:
        plan = self.plan
        requested = requested_nodes(plan)

        def away_limit_of(nodes: Iterable[Node]) -> AwayLimit:
            return AwayLimit.of(plan.policy, self.inputs.percentage_base, requested, nodes)

        return Engine(
            plan=plan,
            cluster=self.cluster,
            check_may_act=self.lock.check,
            report=self.report,
            stop=self.stop,
            gates=self.gates,
            memory=self.memory,
            ledger=self.ledger,
            health_monitor=HealthMonitor(
                self.cluster, self.report, plan.policy, self.gates.health.find_problem
            ),
            conditions=NodeConditions.of_plan(plan, self.cluster, self.lock.check, self.report),
            away_limit_of=away_limit_of,
            why_none_starts=self.stop_rule.why_none_starts,
        )
