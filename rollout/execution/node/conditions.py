"""Sets the lifecycle conditions of nodes around their reboot.

A condition that someone else has set to True stays. Each write replaces all conditions, because the
API cannot merge them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct, field

from rollout.errors import ApiConflictError, ApiNotFoundError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, Guard, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.gather.cluster.snapshot import node_path, read_nodes
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.node_lifecycle import OUR_REASON, Lifecycle
from rollout.model.node_marks import has_marks
from rollout.model.plan import RolloutPlan
from rollout.model.progress import Phase
from rollout.model.text import listed
from rollout.model.timestamps import whole_second
from rollout.ports import ClusterApi

_BY_PHASE: Mapping[Phase, tuple[Lifecycle, ...]] = {
    Phase.CORDONED: (Lifecycle.DRAIN_IN_PROGRESS,),
    Phase.DRAINING: (Lifecycle.DRAIN_IN_PROGRESS,),
    Phase.DRAINED: (Lifecycle.DRAINED,),
    Phase.REBOOTING: (Lifecycle.DRAINED, Lifecycle.MAINTENANCE_IN_PROGRESS),
    Phase.BOOTED: (Lifecycle.DRAINED, Lifecycle.MAINTENANCE_IN_PROGRESS),
    Phase.READY: (Lifecycle.DRAINED, Lifecycle.MAINTENANCE_IN_PROGRESS),
}
_TYPES = frozenset(Lifecycle)
_AT_ONCE = 8
# How long to wait for the API server.
_SECONDS = 10.0
_SECONDS_FOR_ALL = 60.0
_MOST_CONFLICTS = 10
_NAMED = 5

Json = dict[str, Any]
WantedConditions = Callable[[Node], tuple[Lifecycle, ...] | None]
"""Returns rollout's conditions for a node; None leaves the node alone."""


class NodeConditions(Struct, frozen=True):
    """Failures are only reported, because no step needs the conditions."""

    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    # Empty for an abort.
    run_id: str
    # If False, conditions are only removed.
    sets_conditions: bool
    _reported_errors: set[type[RolloutError]] = field(default_factory=set)

    @classmethod
    def of_plan(
        cls, plan: RolloutPlan, cluster: PatientApi, check_may_act: Guard, report: Reporter
    ) -> "NodeConditions":
        is_on = plan.policy.courtesy.conditions
        return cls(cluster, check_may_act, report, run_id=plan.plan_id, sets_conditions=is_on)

    @contextmanager
    def while_running(self, waiting: Collection[str], in_flight: Collection[str]) -> Iterator[None]:
        """Set MaintenancePlanned on `waiting`; remove all conditions at the end.

        Nodes `in_flight` keep what their own steps set.
        """
        self._announce_maintenance(waiting, in_flight)
        try:
            yield
        finally:
            if self.sets_conditions:
                self.remove_all()

    def _announce_maintenance(self, waiting: Collection[str], in_flight: Collection[str]) -> None:
        def wanted_conditions(node: Node) -> tuple[Lifecycle, ...] | None:
            if node.name in in_flight or self._is_of_other_run(node):
                return None
            if self.sets_conditions and node.name in waiting:
                return (Lifecycle.MAINTENANCE_PLANNED,)
            if not node.has_own_conditions:
                return None
            return ()

        self._write_all(wanted_conditions)

    def set_phase_conditions(self, name: str, phase: Phase) -> None:
        if self.sets_conditions and phase in _BY_PHASE:
            self._try_write(name, _BY_PHASE[phase], self.cluster.deadline_within(_SECONDS))

    def remove(self, name: str) -> None:
        self._try_write(name, (), self.cluster.deadline_within(_SECONDS))

    def remove_all(self) -> None:
        """Nodes that another rollout has in flight keep their conditions."""

        def wanted_conditions(node: Node) -> tuple[Lifecycle, ...] | None:
            is_ours = node.has_own_conditions and not self._is_of_other_run(node)
            return () if is_ours else None

        failed_nodes = self._write_all(wanted_conditions)
        if failed_nodes is None:
            self._report_not_removed("may stay on nodes that could not be read")
        elif failed_nodes:
            self._report_not_removed(f"stay on {listed(failed_nodes, _NAMED)}")

    def _report_not_removed(self, where: str) -> None:
        self.report.notice(f"conditions {where}: the next rollout or `rollout abort` removes them")

    def _is_of_other_run(self, node: Node) -> bool:
        if not self.run_id or not has_marks(node):
            return False
        has_failed = node.annotations.get(marks.PHASE) == Phase.FAILED
        return not has_failed and node.annotations.get(marks.RUN) != self.run_id

    def _write_all(self, wanted_conditions: WantedConditions) -> list[str] | None:
        """Return the nodes where the write failed; None if no node could be read."""
        deadline = self.cluster.deadline_within(_SECONDS_FOR_ALL)
        try:
            self.check_may_act()
            nodes = self.cluster.ask(read_nodes, deadline)
        except FencedError:
            # The next holder of the lock removes them.
            return []
        except RolloutError as error:
            self._report_once(error)
            return None
        types_by_node: dict[str, tuple[Lifecycle, ...]] = {}
        for node in nodes:
            types = wanted_conditions(node)
            if types is not None:
                types_by_node[node.name] = types

        def write(name: str) -> bool:
            return self._try_write(name, types_by_node[name], deadline)

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="conditions") as pool:
            successes = pool.map(write, types_by_node)
            return [name for name, ok in zip(types_by_node, successes, strict=True) if not ok]

    def _try_write(self, name: str, types: tuple[Lifecycle, ...], deadline: Deadline) -> bool:
        for _ in range(_MOST_CONFLICTS):
            try:
                self.cluster.ask(lambda api: self._replace_conditions(api, name, types), deadline)
            except ApiConflictError:
                continue
            except ApiNotFoundError:
                return True
            except RolloutError as error:
                self._report_once(error)
                return False
            return True
        return False

    def _replace_conditions(self, api: ClusterApi, name: str, types: tuple[Lifecycle, ...]) -> None:
        self.check_may_act()
        path = node_path(name)
        node = msgspec.json.decode(api.get(path))
        present = node.get("status", {}).get("conditions") or []
        at = whole_second(api.server_time() or self.report.now)
        conditions = with_conditions(present, types, run_id=self.run_id, at=at)
        if conditions != present:
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": {"conditions": conditions}}
            # The read may have been slow.
            self.check_may_act()
            api.patch(f"{path}/status", body)

    def _report_once(self, error: RolloutError) -> None:
        """An error usually concerns all nodes."""
        # The rollout reports a lost lock itself.
        is_lock_lost = isinstance(error, FencedError)
        if is_lock_lost or type(error) in self._reported_errors:
            return
        self._reported_errors.add(type(error))
        self.report.notice(f"the conditions of the nodes cannot be written: {error.message}")


def with_conditions(
    present: list[Json], types: Collection[Lifecycle], *, run_id: str, at: str
) -> list[Json]:
    kept = [condition for condition in present if _may_stay(condition, types)]
    kept_types = {condition["type"] for condition in kept}
    added = [_condition(kind, run_id, at) for kind in types if kind not in kept_types]
    return [*kept, *added]


def _may_stay(condition: Json, types: Collection[Lifecycle]) -> bool:
    kind = condition["type"]
    if kind not in _TYPES:
        return True
    if condition.get("reason") == OUR_REASON:
        return kind in types
    # rollout replaces others' conditions unless they are True.
    return condition["status"] == "True" or kind not in types


def _condition(kind: Lifecycle, run_id: str, at: str) -> Json:
    return {
        "type": kind.value,
        "status": "True",
        "reason": OUR_REASON,
        "message": f"rollout {run_id} reboots the node for its update",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
