from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec import Struct

from rollout.errors import AdmissionDenial, DenierKind
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.eviction import Figures
from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import Budget, OwnerRef, Pod
from rollout.model.drain_finding import Restarting
from rollout.model.progress import PodBlocked, PodReleased
from rollout.planning.drain.budgets import managing_owner
from rollout.wording import text

_REPORT_AFTER = 1.0
_REPEAT_SECONDS = 30.0
# A shared budget's figures change often.
_CHANGED_FIGURES_SECONDS = 10.0

_DENIERS = {
    DenierKind.WEBHOOK: "the admission webhook",
    DenierKind.POLICY: "the ValidatingAdmissionPolicy",
}
NO_REASON = "it gave no reason"


class BlockedReason(Struct, frozen=True):
    """Why a pod cannot be evicted now.

    A restart replaces the pods of a Deployment whose budget never allows an eviction.
    """

    budgets: tuple[str, ...]
    message: str
    # Of the budget, even if the API server does not name it.
    figures: Figures | None = None
    denial: AdmissionDenial | None = None
    # Its controller opens the budget; None if Kubernetes does.
    managing_owner: OwnerRef | None = None
    restart: Restarting | None = None

    @property
    def budget(self) -> str:
        return ", ".join(self.budgets)

    @property
    def only_budget(self) -> str:
        """Empty unless exactly one budget blocks the pod."""
        return self.budget if len(self.budgets) == 1 else ""

    @property
    def blocker_clause(self) -> str:
        """Return `shop/web, which needs 3 healthy pods and has 2`.

        A `restart` needs `why_blocked` instead.
        """
        if self.figures:
            blocker = self.budget or "a disruption budget"
            needs = f"needs {self.figures.needs} healthy pods and has {self.figures.has}"
            return f"{blocker}, which {needs}"
        if self.denial:
            denier = f"{_DENIERS[self.denial.kind]} {self.denial.name}"
            return f"{denier}: {self.denial.message or NO_REASON}"
        return f"{self.budget or 'the API server'}: {self.message}"

    @property
    def blocker_name(self) -> str:
        return self.budget or (self.denial.name if self.denial else "")

    def denier_of_kind(self, kind: DenierKind) -> str:
        return self.denial.name if self.denial and self.denial.kind is kind else ""

    @classmethod
    def of_budget(cls, budget: Budget, pod: Pod) -> "BlockedReason":
        owner = managing_owner(budget, (pod,))
        if budget.sync_error:
            error = f"cannot count its pods: {budget.sync_error}"
            return cls((budget.key,), error, managing_owner=owner)
        figures = Figures(budget.desired_healthy, budget.current_healthy)
        message = f"needs {figures.needs} healthy pods and has {figures.has}"
        return cls((budget.key,), message, figures, managing_owner=owner)

    @classmethod
    def of_restart(cls, restart: Restarting) -> "BlockedReason":
        return cls((), text(restart), restart=restart)

    @classmethod
    def of_several(cls, budgets: Sequence[Budget]) -> "BlockedReason":
        names = tuple(budget.key for budget in budgets)
        return cls(names, "the API server refuses to evict a pod with more than one budget")


@dataclass(slots=True)
class _BlockedPod:
    pod: Pod
    reason: BlockedReason
    since: datetime
    began_at: float
    reported_reason: BlockedReason | None = None
    reported_at: float = 0.0

    @property
    def report_interval(self) -> float:
        """In seconds."""
        reported = self.reported_reason
        has_new_blocker = reported is None or reported.blocker_name != self.reason.blocker_name
        if has_new_blocker:
            return 0.0
        is_unchanged = reported == self.reason
        return _REPEAT_SECONDS if is_unchanged else _CHANGED_FIGURES_SECONDS


@dataclass
class HeldPods:
    task: NodeTask
    deadline: Deadline
    _by_uid: dict[str, _BlockedPod] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_uid)

    def hold(self, pod: Pod, reason: BlockedReason) -> None:
        blocked = self._by_uid.get(pod.uid)
        if blocked is None:
            held_since = self.task.report.now
            self._by_uid[pod.uid] = _BlockedPod(pod, reason, held_since, self.task.now)
        else:
            blocked.reason = reason

    def release(self, uid: str) -> None:
        blocked = self._by_uid.pop(uid, None)
        if blocked is None or blocked.reported_reason is None:
            return
        report = self.task.report
        report.tell(
            PodReleased(
                report.now,
                node=self.task.name,
                pod=blocked.pod.key,
                budget=blocked.reported_reason.budget,
                since=blocked.since,
            )
        )

    def keep_only(self, uids: frozenset[str]) -> None:
        for uid in self._by_uid.keys() - uids:
            self.release(uid)

    def reason_of(self, pod: Pod) -> BlockedReason | None:
        blocked = self._by_uid.get(pod.uid)
        return blocked.reason if blocked else None

    def why_blocked(self, pod: Pod) -> str:
        reason = self.reason_of(pod)
        if reason is None:
            return ""
        if reason.restart is not None:
            return reason.message
        blocked = f"blocked by {reason.blocker_clause}"
        if reason.managing_owner is None:
            return blocked
        owner = reason.managing_owner.named_in(pod.namespace)
        return f"{blocked}; the controller of {owner} did not move the pod"

    def report(self) -> None:
        now = self.task.now
        for blocked in self._by_uid.values():
            is_held_long_enough = now - blocked.began_at >= _REPORT_AFTER
            is_report_due = now - blocked.reported_at >= blocked.report_interval
            if is_held_long_enough and is_report_due:
                self._report_pod(blocked, now)

    def _report_pod(self, blocked: _BlockedPod, now: float) -> None:
        reason = blocked.reason
        blocked.reported_reason = reason
        blocked.reported_at = now
        figures = reason.figures
        owner = blocked.pod.owner
        managing_owner = reason.managing_owner
        message = reason.message
        if reason.denial:
            message = reason.denial.message or NO_REASON
        self.task.report.tell(
            PodBlocked(
                at=self.task.report.now,
                node=self.task.name,
                pod=blocked.pod.key,
                budget=reason.budget,
                since=blocked.since,
                message=message,
                seconds_left=round(self.deadline.remaining, 1),
                needs=figures.needs if figures else None,
                has=figures.has if figures else None,
                owner=f"{owner.kind}/{owner.name}" if owner else "",
                controller=managing_owner.named_in(blocked.pod.namespace) if managing_owner else "",
                webhook=reason.denier_of_kind(DenierKind.WEBHOOK),
                admission_policy=reason.denier_of_kind(DenierKind.POLICY),
                budgets=reason.budgets,
            )
        )
