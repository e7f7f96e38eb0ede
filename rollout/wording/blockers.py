from collections.abc import Sequence

from rollout.model import blocker_finding as findings
from rollout.model.blocker_finding import SurgeObstacle
from rollout.model.cluster import Budget
from rollout.model.deployment import Deployment
from rollout.model.drain_finding import NoRoom
from rollout.model.plan import Blocker
from rollout.model.quantity import Duration
from rollout.model.rivals import TRIGGERS, Coordinator, LockAnnotation, Rival
from rollout.model.text import counted, joined, printable, shell_word, shortened
from rollout.wording.drain import why_fits_nowhere, why_not_evicted
from rollout.wording.words import (
    Words,
    cause_of,
    fix_of,
    rollout_name,
    text,
    unavailable_limit,
    words,
)

_ABORT = "`rollout abort` uncordons it once that rollout has ended"
_OR_ALLOW = "or use --allow unhealthy"
_DRAINING_ON_TRIGGER = TRIGGERS.keys() - {Rival.UPGRADE_CONTROLLER}
_AND_NO_OTHER = "and no other control-plane node may be unavailable at the same time"
_PAUSE_POOLS = 'kubectl patch machineconfigpool --all --type merge -p \'{"spec":{"paused":true}}\''


def blocker(node: str, subject: str, finding: findings.BlockerFinding) -> Blocker:
    message = joined(": ", cause_of(finding), fix_of(finding))
    return Blocker(
        node, finding.kind, subject, message, cause=cause_of(finding), fix=fix_of(finding)
    )


@words.register
def _away_not_ready(_finding: findings.AwayNotReady) -> Words:
    return Words("is not Ready", fix="find out why with `kubectl describe node`")


@words.register
def _away_failed(finding: findings.AwayFailed) -> Words:
    return Words(f"failed in {rollout_name(finding.run_id)} and is still cordoned", fix=_ABORT)


@words.register
def _away_started(finding: findings.AwayStarted) -> Words:
    return Words(f"is still cordoned by {rollout_name(finding.run_id)}", fix=_ABORT)


@words.register
def _away_cordoned(finding: findings.AwayCordoned) -> Words:
    if not finding.since:
        cause = (
            "was cordoned by someone else (the node.kubernetes.io/unschedulable taint has not been"
            " added yet)"
        )
        return Words(
            cause, fix="wait until it is uncordoned, or for one hour after the taint is added"
        )
    return Words(
        f"was cordoned by someone else at {printable(finding.since)}",
        fix="wait until it is uncordoned, or until the cordon is an hour old",
    )


@words.register
def _away_maintained(finding: findings.AwayMaintained) -> Words:
    since = f" at {printable(finding.since)}" if finding.since else ""
    cause = f"has the condition {finding.condition}, which someone else set{since}"
    return Words(cause, fix="wait until that condition is False")


@words.register
def _limit_used_up(finding: findings.LimitUsedUp) -> Words:
    limit = unavailable_limit(finding.limit, finding.pool)
    why_away = words(finding.away)
    return Words(
        f"{why_away.cause}, and uses up {limit}", fix=f"{why_away.fix}, or raise the limit"
    )


@words.register
def _control_plane_away(finding: findings.ControlPlaneAway) -> Words:
    why_away = words(finding.away)
    return Words(f"{why_away.cause}, {_AND_NO_OTHER}", fix=f"{why_away.fix}, {_OR_ALLOW}")


@words.register
def _static_pod_unready(finding: findings.StaticPodUnready) -> Words:
    since = f" since {finding.since}" if finding.since else ""
    return Words(
        f"is not Ready on {finding.node}{since}, {_AND_NO_OTHER}",
        fix=f"find out why with `kubectl describe pod`, {_OR_ALLOW}",
    )


@words.register
def _etcd_majority_lost(finding: findings.EtcdMajorityLost) -> Words:
    cause = (
        f"is the etcd member on {finding.node}: etcd needs {finding.needed} of its"
        f" {finding.members} members to be healthy, and would have only {finding.left} without this"
        " one"
    )
    noun = "member" if len(finding.lacking) == 1 else "members"
    repair = f"fix the {noun} on {', '.join(finding.lacking)}" if finding.lacking else ""
    growth = "add a member" if finding.is_too_small else ""
    return Words(cause, fix=f"{joined(' and ', repair, growth)}, {_OR_ALLOW}")


@words.register
def _last_api_server(_finding: findings.LastApiServer) -> Words:
    return Words(
        "is the only API server that is Ready", fix=f"start another API server, {_OR_ALLOW}"
    )


@words.register
def _copies_lacking(finding: findings.CopiesLacking) -> Words:
    if finding.away:
        nodes = ", ".join(finding.away)
        verb = "is" if len(finding.away) == 1 else "are"
        cause = f"would not have enough healthy replicas while {nodes} {verb} also unavailable"
        return Words(cause, fix=f"wait until {nodes} {verb} available again, {_OR_ALLOW}")
    return Words(finding.problem, fix=f"{finding.fix}, {_OR_ALLOW}")


@words.register
def _coordinator_active(finding: findings.CoordinatorActive) -> Words:
    coordinator = finding.coordinator
    # MCO's Deployments do not show paused pools.
    conjunction = "and then" if coordinator.rival == Rival.MCO else "or"
    ignore = f"{conjunction} ignore it with --allow {coordinator.rival}"
    return Words(_what_it_does(coordinator), fix=f"{_how_to_stop(coordinator)}, {ignore}")


def _what_it_does(coordinator: Coordinator) -> str:
    if coordinator.rival == Rival.FLEETLOCK:
        return "lets hosts reboot by themselves"
    if coordinator.rival in _DRAINING_ON_TRIGGER:
        return "has requests to cordon and drain nodes"
    if coordinator.holders:
        return f"reboots nodes by itself and holds its lock for {', '.join(coordinator.holders)}"
    return "reboots nodes by itself"


def _how_to_stop(coordinator: Coordinator) -> str:
    kind = coordinator.kind.lower()
    if coordinator.rival == Rival.MCO:
        return f"pause its pools ({_PAUSE_POOLS})"
    if coordinator.rival == Rival.KURED:
        if not coordinator.lock:
            return "remove it"
        lock = _annotation_taking_lock(coordinator.lock)
        annotate = f"kubectl -n {coordinator.namespace} annotate {kind} {coordinator.name} {lock}"
        return f"take its lock manually ({annotate}), or remove it"
    scale = f"kubectl -n {coordinator.namespace} scale {kind} {coordinator.name} --replicas=0"
    return f"pause it ({scale})"


def _annotation_taking_lock(lock: LockAnnotation) -> str:
    name = shell_word(lock.name)
    if lock.owners == 1:
        return f"""{name}='{{"nodeID":"manual"}}'"""
    places = ",".join(f'{{"nodeID":"manual-{i}"}}' for i in range(1, lock.owners + 1))
    return f"""{name}='{{"maxOwners":{lock.owners},"locks":[{places}]}}'"""


@words.register
def _pod_refused(finding: findings.PodRefused) -> Words:
    return Words(why_not_evicted(finding.reasons))


@words.register
def _stuck_terminating(finding: findings.StuckTerminating) -> Words:
    stuck = stuck_terminating(finding.overdue, finding.finalizers)
    cause = f"{stuck}, but --drain-timeout is {finding.timeout}"
    setting = f"--set drain.skip-wait-for-delete-timeout={round(finding.timeout)}"
    return Words(cause, fix=f"see what blocks its deletion, or skip it with {setting}")


def stuck_terminating(overdue: Duration, finalizers: Sequence[str]) -> str:
    held = f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
    return f"is stuck terminating: its grace period ended {overdue} ago{held}"


@words.register
def _several_budgets(finding: findings.SeveralBudgets) -> Words:
    names = ", ".join(finding.budgets)
    selected = f"is selected by {len(finding.budgets)} PDBs ({names})"
    return Words(
        f"{selected}; the API server refuses to evict such a pod",
        fix="delete all but one of these PDBs, or use --disable-eviction",
    )


@words.register
def _budget_uncounted(finding: findings.BudgetUncounted) -> Words:
    cause = (
        "allows no eviction because the disruption controller cannot count its pods"
        f" ({finding.error})"
    )
    scalable = "make it select only pods whose controllers have a scale subresource"
    return Words(cause, fix=_fixes("set minAvailable to a number", scalable))


@words.register
def _budget_unscaled(finding: findings.BudgetUnscaled) -> Words:
    cause = (
        f"{rule_of(finding.budget)} never allows an eviction, because it cannot be calculated: the"
        " controllers of its pods have no scale subresource"
    )
    return Words(cause, fix=_fixes(f"set minAvailable to {finding.min_available}"))


@words.register
def _budget_never(finding: findings.BudgetNever) -> Words:
    budget = finding.budget
    pods = counted(budget.expected_pods, "pod")
    ended = f", {finding.ended} of them completed" if finding.ended else ""
    cause = f"{rule_of(budget)} never allows an eviction ({pods}{ended})"
    restart = ""
    if isinstance(finding.restart, Deployment):
        restart = "let rollout restart the Deployment (--set drain.restart=blocked)"
    elif isinstance(finding.restart, findings.NoSurge):
        cause = f"{cause}, and {text(finding.restart)}"
    growth = ""
    if finding.replicas:
        growth = "add a replica" if finding.replicas == 1 else f"add {finding.replicas} replicas"
    return Words(
        cause, fix=_fixes(growth, restart, _relaxation(budget, finding.healthy, unavailable=1))
    )


_SURGE_OBSTACLES = {
    SurgeObstacle.STATEFUL_SET: "it starts a pod only after the old one has terminated",
    SurgeObstacle.PAUSED: "it is paused",
    SurgeObstacle.RECREATE: "its strategy is Recreate",
    SurgeObstacle.NO_SURGE: "its maxSurge is 0",
    SurgeObstacle.UNAVAILABLE: "its maxUnavailable terminates pods before new ones are ready",
    SurgeObstacle.VOLUME: "only one node at a time can mount its volume",
}


@words.register
def _no_surge(finding: findings.NoSurge) -> Words:
    return Words(
        f"drain.restart does not help {finding.owner}: {_SURGE_OBSTACLES[finding.obstacle]}"
    )


@words.register
def _budget_unhealthy(finding: findings.BudgetUnhealthy) -> Words:
    budget = finding.budget
    is_one = len(finding.unready) == 1
    has = "has" if is_one else "have"
    them = "it" if is_one else "them"
    cause = (
        f"needs {budget.desired_healthy} healthy pods and has {budget.current_healthy}, and"
        f" {shortened(finding.unready, 1)} {has} not been ready since {finding.since}"
    )
    policy = "set its unhealthyPodEvictionPolicy to AlwaysAllow" if finding.is_policy_enough else ""
    return Words(cause, fix=_fixes(f"make {them} ready", policy))


@words.register
def _fits_nowhere(finding: findings.FitsNowhere) -> Words:
    lost = finding.lost
    rest = counted(len(lost) - 1, "more pod")
    others = f" (and {rest} of this PDB)" if len(lost) > 1 else ""
    why = why_fits_nowhere(finding.obstacle)
    cause = (
        f"{lost[0]}{others} cannot be scheduled on another node: {why}; and this PDB allows"
        f" only {counted(finding.away, 'unavailable pod')}"
    )
    room = "make room on other nodes" if isinstance(finding.obstacle, NoRoom) else ""
    relaxation = _relaxation(finding.budget, finding.healthy, unavailable=len(lost))
    return Words(cause, fix=_fixes(room, relaxation))


def rule_of(budget: Budget) -> str:
    if budget.max_unavailable:
        return f"maxUnavailable {budget.max_unavailable}"
    # Kubernetes' default is 1.
    return f"minAvailable {budget.min_available or '1'}"


def _fixes(*clauses: str) -> str:
    alternatives = [clause for clause in clauses if clause]
    last = "use --disable-eviction"
    if not alternatives:
        return last
    comma = "," if len(alternatives) > 1 else ""
    return f"{', '.join(alternatives)}{comma} or {last}"


def _relaxation(budget: Budget, healthy: int, *, unavailable: int) -> str:
    if budget.max_unavailable:
        return f"raise the PDB's maxUnavailable to {unavailable}"
    # A critical rule is a setting, whose keys have hyphens.
    field = "its min-available" if budget.critical else "the PDB's minAvailable"
    return f"lower {field} to {max(0, healthy - unavailable)}"
