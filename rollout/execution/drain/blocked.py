"""The pods of a node that cannot be evicted now: why, and since when."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rollout.errors import AdmissionDenial, DenierKind
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.task import NodeTask
from rollout.model.cluster import Budget, OwnerRef, Pod
from rollout.model.drain_finding import Restarting
from rollout.model.progress import PodBlocked, PodReleased
from rollout.planning.drain.budgets import managing_owner
from rollout.wording import text

_REPORT_AFTER = 1.0
_REPEAT_SECONDS = 30.0
# A shared budget's figures change often.
_SAME_BUDGET_SECONDS = 10.0


_DENIERS = {
    DenierKind.WEBHOOK: "the admission webhook",
    DenierKind.POLICY: "the ValidatingAdmissionPolicy",
}
NO_REASON = "it gave no reason"


@dataclass(frozen=True, slots=True)
class BlockedReason:
    budgets: tuple[str, ...]
    message: str
    # Healthy pods that the budget needs and has, even if the API server does not name it.
    figures: tuple[int, int] | None = None
    denial: AdmissionDenial | None = None
    # Whose controller opens the budget; None for Kubernetes itself.
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
        """Complete "blocked by": `shop/web, which needs 3 healthy pods and has 2`.

        Not for a `restart`, whose message is a sentence: see `why_blocked`.
        """
        if self.figures:
            needs, has = self.figures
            blocker = self.budget or "a disruption budget"
            return f"{blocker}, which needs {needs} healthy pods and has {has}"
        if self.denial:
            denier = f"{_DENIERS[self.denial.kind]} {self.denial.name}"
            return f"{denier}: {self.denial.message or NO_REASON}"
        return f"{self.budget or 'the API server'}: {self.message}"

    @property
    def blocker_name(self) -> str:
        return self.budget or (self.denial.name if self.denial else "")

    def denier(self, kind: DenierKind) -> str:
        return self.denial.name if self.denial and self.denial.kind is kind else ""

    @classmethod
    def of(cls, budget: Budget, pod: Pod) -> "BlockedReason":
        owner = managing_owner(budget, (pod,))
        if budget.sync_error:
            error = f"cannot count its pods: {budget.sync_error}"
            return cls((budget.key,), error, managing_owner=owner)
        needs = budget.desired_healthy
        has = budget.current_healthy
        message = f"needs {needs} healthy pods and has {has}"
        return cls((budget.key,), message, (needs, has), managing_owner=owner)

    @classmethod
    def of_restart(cls, restart: Restarting) -> "BlockedReason":
        return cls((), text(restart), restart=restart)

    @classmethod
    def of_several(cls, budgets: Sequence[Budget]) -> "BlockedReason":
        names = tuple(budget.key for budget in budgets)
        return cls(names, "the API server refuses to evict a pod with more than one budget")


@dataclass(slots=True)
class _BlockedPod:
    """A pod that cannot be evicted now; times are monotonic seconds."""

    pod: Pod
    reason: BlockedReason
    since: datetime
    began: float
    reported: BlockedReason | None = None
    reported_at: float = 0.0

    @property
    def report_pause(self) -> float:
        if self.reported is None or self.reported.blocker_name != self.reason.blocker_name:
            return 0.0
        return _REPEAT_SECONDS if self.reported == self.reason else _SAME_BUDGET_SECONDS


@dataclass
class HeldPods:
    task: NodeTask
    deadline: Deadline
    _by_uid: dict[str, _BlockedPod] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_uid)

    def hold(self, pod: Pod, reason: BlockedReason) -> None:
        began = _BlockedPod(pod, reason, self.task.report.now, self.task.now)
        self._by_uid.setdefault(pod.uid, began).reason = reason

    def release(self, uid: str) -> None:
        hold = self._by_uid.pop(uid, None)
        if hold is not None and hold.reported is not None:
            report = self.task.report
            report.tell(
                PodReleased(
                    report.now,
                    node=self.task.name,
                    pod=hold.pod.key,
                    budget=hold.reported.budget,
                    since=hold.since,
                )
            )

    def keep_only(self, uids: frozenset[str]) -> None:
        for uid in self._by_uid.keys() - uids:
            self.release(uid)

    def reason_of(self, pod: Pod) -> BlockedReason | None:
        hold = self._by_uid.get(pod.uid)
        return hold.reason if hold else None

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
        for hold in self._by_uid.values():
            if now - hold.began >= _REPORT_AFTER and now - hold.reported_at >= hold.report_pause:
                self._report_pod(hold, now)

    def _report_pod(self, hold: _BlockedPod, now: float) -> None:
        reason = hold.reason
        hold.reported = reason
        hold.reported_at = now
        needs, has = reason.figures or (None, None)
        owner = hold.pod.owner
        managing_owner = reason.managing_owner
        message = reason.message
        if reason.denial:
            message = reason.denial.message or NO_REASON
        self.task.report.tell(
            PodBlocked(
                at=self.task.report.now,
                node=self.task.name,
                pod=hold.pod.key,
                budget=reason.budget,
                since=hold.since,
                message=message,
                seconds_left=round(self.deadline.remaining, 1),
                needs=needs,
                has=has,
                owner=f"{owner.kind}/{owner.name}" if owner else "",
                controller=managing_owner.named_in(hold.pod.namespace) if managing_owner else "",
                webhook=reason.denier(DenierKind.WEBHOOK),
                admission_policy=reason.denier(DenierKind.POLICY),
                budgets=reason.budgets,
            )
        )
