"""What is known of the pods of a node that is being drained: how long they take to end, and why some are left."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rollout.errors import DenierKind
from rollout.execution.base.live_view import LiveView
from rollout.execution.drain.blocked import HeldPods
from rollout.execution.drain.budget_view import BudgetView
from rollout.execution.drain.evictor import Acceptance, Evictor
from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import CRITICAL, Pod
from rollout.model.memory import seconds_since
from rollout.model.progress import EvictedPod, Phase, PodsEvicted
from rollout.model.quantity import Duration
from rollout.model.text import counted, listed, shell_word

NAMED = 5
# A hundred pods that end one by one are no hundred lines in a log.
_TICK_OF_TELLING = 1.0
_QUIET = 60.0
_OVERDUE = 30.0
# The watch shows a pod's deletion within this many seconds of the answer to its eviction.
_SHOWN = 5.0


@dataclass(frozen=True, slots=True)
class Termination:
    """How long a pod has been terminating, and its whole grace period, in seconds."""

    spent: float
    grace: float

    @property
    def left(self) -> float:
        """Return how much longer the pod may take; negative if its grace period is over."""
        return self.grace - self.spent


@dataclass(slots=True)
class Waiting:
    """What is told, and believed, while pods terminate. `going` says since when, by UID, in monotonic seconds.

    `quiet_since` is when the pods were seen to change last, and `quiet_limit` for how long that is believed; `longest`
    is how many seconds a pod of an owner took to end at most, from when its eviction was granted. `evicted` are the
    evicted pods that were not told of yet.
    """

    task: NodeTask
    evictor: Evictor
    held: HeldPods
    going: dict[str, float] = field(default_factory=dict)
    reported: str = ""
    reported_at: float = float("-inf")
    quiet_since: float = 0.0
    quiet_limit: float = _QUIET
    doubted: tuple[tuple[str, bool], ...] = ()
    longest: dict[str, float] = field(default_factory=dict)
    seen: tuple[Pod, ...] = ()
    evicted: list[EvictedPod] = field(default_factory=list)
    evicted_told_at: float = float("-inf")

    def tell(self, remaining: Sequence[Pod]) -> None:
        """Tell how many pods are left, and which ones are gone."""
        now = self.task.now
        going = [pod for pod in remaining if pod.terminating or self.evictor.of(pod).accepted is not None]
        self.see_endings(remaining)
        if now - self.evicted_told_at >= _TICK_OF_TELLING:
            self._tell_evicted()
        for pod in going:
            self.going.setdefault(pod.uid, now)
        detail = self._detail(remaining, going)
        if detail != self.reported and now - self.reported_at >= _TICK_OF_TELLING:
            self.reported = detail
            self.reported_at = now
            self.task.step(Phase.DRAINING, detail)

    def _detail(self, remaining: Sequence[Pod], going: Sequence[Pod]) -> str:
        ignored = [pod for pod in going if self._is_ignored(pod)]
        detail = f"{counted(len(remaining), 'pod')} left, {len(going) - len(ignored)} terminating"
        if ignored:
            names = listed([pod.key for pod in ignored], NAMED)
            detail += f"; evicted but not deleted: {names}"
        overdue = [pod for pod in going if pod.terminating and self.termination(pod).left < -_OVERDUE]
        if overdue:
            detail += f"; overdue: {listed([f'{pod.key}{_finalizers(pod)}' for pod in overdue], NAMED)}"
        return detail

    def _is_ignored(self, pod: Pod) -> bool:
        """Whether an eviction was accepted, and nobody has deleted the pod since."""
        accepted = self.evictor.of(pod).accepted
        return not pod.terminating and accepted is not None and self.task.now - accepted.first > _SHOWN

    def termination(self, pod: Pod) -> Termination:
        """Return how far a terminating pod is.

        The time since this process evicted it is measured by this process's own clock. What somebody else has deleted
        is measured by the API server's clock, which has stamped it.
        """
        now = self.task.now
        accepted = self.evictor.of(pod).accepted
        own_grace = self.task.policy.drain.grace_of(pod.grace_period)
        grace = own_grace if pod.deletion_grace is None else pod.deletion_grace
        if accepted is not None:
            return Termination(now - accepted.first, grace)
        server_time = self.task.cluster.api.server_time()
        if server_time is not None and pod.deletion_grace is not None:
            return Termination(max(0.0, grace + seconds_since(pod.deleted_at, server_time)), grace)
        return Termination(now - self.going.get(pod.uid, now), grace)

    def see_endings(self, remaining: Sequence[Pod]) -> None:
        """Note how long those evicted pods took to end that are gone since the last look."""
        now = self.task.now
        left = {pod.uid for pod in remaining}
        for pod in self.seen:
            accepted = self.evictor.of(pod).accepted
            if pod.uid in left or accepted is None:
                continue
            seconds = round(now - accepted.first, 1)
            self._note_evicted(pod, accepted, seconds)
            if pod.owner is not None:
                owner = f"{pod.owner.kind}/{pod.namespace}/{pod.owner.name}"
                self.longest[owner] = max(seconds, self.longest.get(owner, 0.0))
        self.seen = tuple(remaining)

    def close(self, remaining: Sequence[Pod]) -> None:
        """Tell of all evicted pods that were not told of yet, those that are left at the drain's end too."""
        self.see_endings(remaining)
        for pod in remaining:
            accepted = self.evictor.of(pod).accepted
            if accepted is not None:
                self._note_evicted(pod, accepted, None)
        self._tell_evicted()

    def _note_evicted(self, pod: Pod, accepted: Acceptance, seconds: float | None) -> None:
        if pod.uid in self.task.moved:
            owner = f"{pod.owner.kind}/{pod.owner.name}" if pod.owner else ""
            self.evicted.append(EvictedPod(pod.key, owner, accepted.at, seconds))

    def _tell_evicted(self) -> None:
        if self.evicted:
            self.evicted_told_at = self.task.now
            pods = tuple(self.evicted)
            self.evicted = []
            self.task.report.tell(PodsEvicted(self.task.report.now, self.task.name, pods))

    def doubt(self, pods: LiveView[Pod], budgets: BudgetView, remaining: Sequence[Pod]) -> None:
        """List afresh, ever more rarely, where the watches have long said nothing of pods that go, or may not go."""
        now = self.task.now
        state = tuple((pod.uid, pod.terminating) for pod in remaining)
        if state != self.doubted:
            self.doubted = state
            self.quiet_since = now
            self.quiet_limit = _QUIET
        elif now - self.quiet_since > self.quiet_limit:
            self.quiet_since = now
            self.quiet_limit = self.quiet_limit * 2
            if self.going:
                pods.resync()
            if len(self.held):
                budgets.resync()

    def why_left(self, pod: Pod) -> str:
        """Return a clause on why this pod is still there."""
        accepted = self.evictor.of(pod).accepted
        if pod.terminating:
            return self._why_terminating(pod)
        if accepted is not None:
            request = "deletion" if self.task.policy.drain.disable_eviction else "eviction"
            since = Duration(round(self.task.now - accepted.first))
            return f"{pod.key} was not deleted, although its {request} was accepted {since} ago"
        why = self.held.why(pod) or self.evictor.of(pod).last
        return f"{pod.key}: {why}" if why else f"{pod.key} was not evicted yet"

    def _why_terminating(self, pod: Pod) -> str:
        state = self.termination(pod)
        spent = Duration(round(state.spent))
        grace = Duration(round(state.grace))
        terminating = f"{pod.key} is still terminating after {spent}"
        if state.left > 0:
            left = Duration(max(1, round(state.left)))
            return f"{terminating} and may take another {left} of its {grace} grace period{_finalizers(pod)}"
        over = Duration(round(-state.left))
        return f"{terminating}, {over} longer than its {grace} grace period{_finalizers(pod)}"

    def hint(self, remaining: Sequence[Pod]) -> str:
        """Return what to do about the pods that are left at the deadline."""
        in_grace = [pod for pod in remaining if pod.terminating and self.termination(pod).left > 0]
        others = [pod for pod in remaining if pod not in in_grace]
        see = f"See: {self.look_at(others[0])}" if others else ""
        if not in_grace:
            return see
        longest = Duration(max(round(self.termination(pod).grace) for pod in in_grace))
        wait = f"Set --drain-timeout above {longest}, or shorten the grace period with --grace-period"
        return f"{see}; {wait}" if see else f"{wait}."

    def look_at(self, pod: Pod) -> str:
        """Return the command that shows what keeps it: its budget where that alone does."""
        denial = self.held.denial_of(pod)
        if denial is not None and denial.kind is DenierKind.POLICY:
            return f"kubectl describe validatingadmissionpolicy {shell_word(denial.name)}"
        budget = "" if pod.terminating else self.held.budget_of(pod)
        if budget.startswith(CRITICAL):
            _, namespace, selector = budget.split("/", 2)
            return f"kubectl get pods -n {namespace} -l {shell_word(selector)}"
        kind, (namespace, _, name) = ("pdb", budget.partition("/")) if budget else ("pod", pod.key.partition("/"))
        return f"kubectl describe {kind} -n {namespace} {name}"


def _finalizers(pod: Pod) -> str:
    return f" (finalizers: {', '.join(pod.finalizers)})" if pod.finalizers else ""
