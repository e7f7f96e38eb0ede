from typing import assert_never

from rollout.model import drain_finding
from rollout.model import warning_finding as findings
from rollout.model.plan import PlanWarning
from rollout.model.policy import CompletionFallback
from rollout.model.text import counted, shortened
from rollout.wording.blockers import stuck_terminating
from rollout.wording.drain import why_fits_nowhere
from rollout.wording.words import Words, cause_of, words

_MOST_USERS = 3
# One string for many pods saves memory.
_LOCAL_STORAGE_IS_LOST = (
    "emptyDir data will be lost (to block the eviction of such pods, use --no-delete-emptydir-data)"
)
_REBOOT_STOPS_IT = "the reboot stops it, bypassing its PDBs"


def warning(node: str, subject: str, finding: findings.WarningFinding) -> PlanWarning:
    return PlanWarning(node, subject, cause_of(finding), finding.kind)


@words.register
def _pod_warning(warning_of_pod: findings.PodWarning) -> Words:
    match warning_of_pod.finding:
        case drain_finding.NotSelected():
            return Words(f"{cause_of(warning_of_pod.finding)}: {_REBOOT_STOPS_IT}")
        case drain_finding.OverduePod():
            return Words(f"{cause_of(warning_of_pod.finding)}; the drain does not wait for it")
        case drain_finding.DaemonSetGone(daemon_set=name):
            return Words(f"DaemonSet {name} no longer exists (evicted because --force is set)")
        case drain_finding.LocalStorage():
            return Words(_LOCAL_STORAGE_IS_LOST)
        case drain_finding.UnmanagedPod():
            return Words("no controller will create a replacement (evicted because --force is set)")
        case _:
            # verdicts.py warns of no others.
            raise NotImplementedError(warning_of_pod.finding)


@words.register
def _critical_unready(finding: findings.CriticalUnready) -> Words:
    since = f" since {finding.since}" if finding.since else ""
    effect = "the reboot may not fix it, and rollout does not wait for it"
    return Words(f"is system-node-critical and not Ready{since}: {effect}")


@words.register
def _stays_here(_finding: findings.StaysHere) -> Words:
    why = "tolerates the unschedulable taint and fits on no other node"
    return Words(f"{why}: it would be scheduled on this node again, and {_REBOOT_STOPS_IT}")


@words.register
def _terminating_late(finding: findings.TerminatingLate) -> Words:
    stuck = stuck_terminating(finding.overdue, finding.finalizers)
    setting = "drain.skip-wait-for-delete-timeout"
    return Words(f"{stuck}; the drain waits for it, unless {setting} skips it")


@words.register
def _long_grace(finding: findings.LongGrace) -> Words:
    period = f"another {finding.grace}" if finding.is_terminating else finding.grace
    timing = f"may take {period} to terminate, but the drain times out after {finding.timeout}"
    ways = "raise --drain-timeout, or shorten the grace period with --grace-period"
    return Words(f"{timing}: {ways}")


@words.register
def _long_completion(finding: findings.LongCompletion) -> Words:
    setting = "drain.wait-for-completion-timeout"
    likely = f"may run for another {finding.left}, but the drain waits only {finding.timeout}"
    match finding.fallback:
        case CompletionFallback.RETURN:
            return Words(
                f"{likely}, after which the node is uncordoned without a reboot: raise {setting}"
            )
        case CompletionFallback.EVICT:
            return Words(f"{likely}, after which it is evicted: raise {setting} to let it finish")
        case _:
            assert_never(finding.fallback)


@words.register
def _longhorn_opens(_finding: findings.LonghornOpens) -> Words:
    unless = "a volume has its last healthy replica on this node, or stays attached"
    fails = "in that case the drain times out (--drain-timeout)"
    return Words(f"Longhorn removes it after the node is cordoned, unless {unless}; {fails}")


@words.register
def _rook_opens(_finding: findings.RookOpens) -> Words:
    when = "for one failure domain at a time, once Ceph is healthy"
    return Words(f"Rook relaxes it {when}: the drain waits for this")


@words.register
def _budget_closed(finding: findings.BudgetClosed) -> Words:
    pods = f"{finding.healthy} of {finding.needed} needed pods are healthy"
    waits = "the drain waits for it, up to --drain-timeout; see why its pods are not ready"
    return Words(f"currently allows no evictions ({pods}): {waits}")


@words.register
def _budget_managed(finding: findings.BudgetManaged) -> Words:
    owner = finding.owner.named_in(finding.namespace)
    if not finding.is_alone:
        when = f"once the controller of {owner} moves its pod"
        return Words(f"allows evictions again {when}, usually after the node is cordoned")
    when = f"only once the controller of {owner} moves its pod"
    risk = f"{owner} has no other pod to switch to, so the drain may time out (--drain-timeout)"
    return Words(f"allows evictions again {when}. {risk}: add an instance")


@words.register
def _budget_surged(finding: findings.BudgetSurged) -> Words:
    restart = f"the drain restarts Deployment {finding.deployment} (drain.restart)"
    return Words(f"never allows an eviction: {restart}, and waits for its new pods")


@words.register
def _down_meanwhile(finding: findings.DownMeanwhile) -> Words:
    because = why_fits_nowhere(finding.nowhere)
    # A line may stand for several pods, so no word is singular.
    remedy = _remedy(finding.nowhere)
    return Words(f"will be down until the reboot is done: {because}; to avoid this, {remedy}")


def _remedy(nowhere: drain_finding.Nowhere) -> str:
    match nowhere:
        case drain_finding.NoRoom():
            return "make room on other nodes"
        case drain_finding.NoNodeMatches() | drain_finding.RulesExclude():
            return "add a node or relax the rules"
        case drain_finding.VolumeElsewhere():
            return "use a volume that other nodes can mount"
        case _:
            assert_never(nowhere)


@words.register
def _budget_crowded(finding: findings.BudgetCrowded) -> Words:
    allows = f"allows only {finding.allowed} of the {finding.pods} pods expected on this node"
    room = "not all pods on this node fit on other nodes"
    risk = "if those pods are evicted last, the drain may time out (--drain-timeout)"
    return Words(f"{allows} to be unavailable, but {room}: {risk}; make room on other nodes")


@words.register
def _all_replicas(finding: findings.AllReplicas) -> Words:
    where = f"all its {finding.pods} pods are on this node"
    risk = "no PDB prevents them from being evicted together"
    return Words(f"{where}, and {risk}: spread them, or create a PDB")


@words.register
def _held_version_taken(finding: findings.HeldVersionTaken) -> Words:
    return Words(f"included anyway, as requested: {cause_of(finding.held)}")


@words.register
def _backing_off_node_taken(finding: findings.BackingOffNodeTaken) -> Words:
    return Words(f"`rollout operate` would leave it out: {cause_of(finding.backoff)}")


@words.register
def _users_logged_in(finding: findings.UsersLoggedIn) -> Words:
    users = f"{counted(len(finding.users), 'user')} logged in"
    names = shortened(finding.users, _MOST_USERS)
    return Words(f"{users} ({names}); to leave the node out, run: rollout pause {finding.node}")


@words.register
def _more_updates(finding: findings.MoreUpdates) -> Words:
    another = f"needs another reboot after {finding.staged}, for {finding.newest}"
    return Words(f"{another}: run rollout again once that is staged")


@words.register
def _covers_no_pod(_finding: findings.CoversNoPod) -> Words:
    return Words("selects no pods: check its namespace and selector")


@words.register
def _other_at_work(finding: findings.OtherAtWork) -> Words:
    away = words(finding.away)
    return Words(f"{away.cause}, and counts against --max-unavailable: {away.fix}")
