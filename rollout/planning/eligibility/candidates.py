"""Which nodes take part: the first rule that excludes a node gives the reason."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from rollout.model import finding as findings
from rollout.model import marks
from rollout.model.cluster import ConditionStatus, Node, Pod
from rollout.model.demand import PodDemand
from rollout.model.detection import Source, SourceAnswer
from rollout.model.finding import NodeFinding
from rollout.model.host import (
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateOperation,
    UpdateStanding,
)
from rollout.model.node_kind import why_removed, why_unsupported
from rollout.model.node_marks import annotation_problem, detect_flag, sources_not_asked, why_paused
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.plan import Exclusion, ExclusionReason, RolloutPlan
from rollout.model.policy import ControlPlaneOrder, Policy, Selection
from rollout.model.rivals import Rival
from rollout.model.selectors import parse_selector
from rollout.planning.eligibility.judgement import EligibilityInputs, why_not_startable
from rollout.planning.eligibility.rivals import marks_of_rivals
from rollout.wording import brief_of, fix_of, text

_NOT_UPDATING = frozenset(
    {UpdateOperation.IDLE, UpdateOperation.NOT_ASKED, UpdateOperation.UNKNOWN}
)

_PROBE_FINDINGS: Mapping[ProbeFailureKind, type[findings.ProbeFailed]] = {
    ProbeFailureKind.WRONG_HOST: findings.HostMismatch,
    ProbeFailureKind.UNREPORTED: findings.StatusUnreported,
}


class Candidate(Struct, frozen=True):
    node: Node
    observation: HostObservation | None
    policy: Policy
    inputs: EligibilityInputs
    pool: str = ""
    # The system-upgrade-controller's pod on the node, or empty.
    upgraded_by: str = ""

    @property
    def facts(self) -> HostFacts | None:
        return self.observation if isinstance(self.observation, HostFacts) else None


def is_excluded_by_name(name: str, selection: Selection) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in selection.exclude)


def requested_nodes(plan: RolloutPlan) -> Mapping[str, str]:
    """Return the selected nodes that `--exclude` does not name, and their pools."""
    pools = {exclusion.node: exclusion.pool for exclusion in plan.excluded}
    pools |= {node.name: node.pool for node in plan.nodes}
    return {
        name: pool for name, pool in pools.items() if not is_excluded_by_name(name, plan.selection)
    }


def is_control_plane(node: Node, policy: Policy) -> bool:
    if node.is_control_plane:
        return True
    selector = policy.control_plane_selector
    return bool(selector) and _parse_selector(selector).matches(node.labels)


_parse_selector = lru_cache(maxsize=8)(parse_selector)


def _why_deselected(candidate: Candidate) -> NodeFinding | None:
    node = candidate.node
    policy = candidate.policy
    if is_excluded_by_name(node.name, candidate.inputs.selection):
        return findings.ExcludedByFlag("--exclude")
    if policy.control_plane is ControlPlaneOrder.EXCLUDE and is_control_plane(node, policy):
        return findings.ExcludedByFlag("--control-plane exclude")
    return None


def _why_unsupported(candidate: Candidate) -> NodeFinding | None:
    return why_unsupported(candidate.node)


def _why_deleting(candidate: Candidate) -> NodeFinding | None:
    return why_removed(candidate.node)


def _why_not_ready(candidate: Candidate) -> NodeFinding | None:
    node = candidate.node
    if node.is_ready:
        return None
    is_silent = node.ready is ConditionStatus.UNKNOWN
    return findings.NodeNotReady(is_silent, node.ready_message)


def _why_cordoned(candidate: Candidate) -> NodeFinding | None:
    node = candidate.node
    if not node.unschedulable or candidate.policy.include_cordoned:
        return None
    run_id = node.annotations.get(marks.RUN)
    is_cordoned_by_rollout = node.annotations.get(marks.CORDONED_BY_US) == "true"
    if run_id and is_cordoned_by_rollout:
        return findings.LeftCordoned(run_id, node.annotations.get(marks.PHASE, "unknown"))
    first_rival_mark = next(marks_of_rivals(node), None)
    return findings.CordonedByOther(first_rival_mark)


def _why_in_maintenance(candidate: Candidate) -> NodeFinding | None:
    condition = candidate.node.maintenance_by_others
    return findings.MaintainedByOther(condition.type) if condition else None


def _why_marks_unknown(candidate: Candidate) -> NodeFinding | None:
    return annotation_problem(candidate.node)


def _why_paused(candidate: Candidate) -> NodeFinding | None:
    return why_paused(candidate.node, candidate.inputs.now)


def _why_without_facts(candidate: Candidate) -> NodeFinding:
    observation = candidate.observation
    if not isinstance(observation, ProbeFailure):
        return findings.NoHost()
    finding_class = _PROBE_FINDINGS.get(observation.kind, findings.HostUnreachable)
    return finding_class(observation.message, observation.hint, observation.brief)


def _why_no_rollback(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    """Return why a rollback skips the host; None if this is no rollback."""
    version = candidate.policy.rollback
    if not version:
        return None
    if facts.running_version != version:
        return findings.OtherVersionRuns(facts.running_version, version)
    # A rollback's only source says whether the host has a previous version.
    detection = facts.detection
    if detection.unanswered:
        return findings.PreviousVersionUnknown(detection.unanswered[0].detail, facts.host.user)
    if detection.needs_reboot:
        return None
    details = (sign.detail for sign in detection.signs)
    return findings.NoPreviousVersion("; ".join(details))


def _why_no_update(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    detection = facts.detection
    if detection.needs_reboot or detection.unanswered:
        return None
    is_idle = facts.update.operation in _NOT_UPDATING
    if is_idle and candidate.policy.reboot_idle:
        return None
    answers = (sign.detail for sign in detection.signs if sign.answer is SourceAnswer.NOT_NEEDED)
    # The annotation may ask for a reboot, but not be in `detect.sources`.
    is_annotation_ignored = Source.ANNOTATION in sources_not_asked(candidate.node, facts)
    flag = ""
    if is_idle and is_annotation_ignored:
        flag = detect_flag(*facts.sources, Source.ANNOTATION)
    return findings.RebootNotNeeded(tuple(answers), detect_flag=flag, may_reboot_idle=is_idle)


def _why_status_unknown(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    unanswered = facts.detection.unanswered
    if not unanswered:
        return None
    answers = tuple(sign.detail for sign in unanswered)
    unasked = sources_not_asked(candidate.node, facts)
    flag = detect_flag(*facts.sources, *unasked) if unasked else ""
    return findings.SourcesSilent(
        answers, unasked_sources=unasked, detect_flag=flag, lacks_engine=facts.lacks_engine
    )


def _why_held_back(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    return why_not_startable(candidate.node.name, facts.detection.staged_version, candidate.inputs)


def _why_reboot_blocked(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    # The user's own command may work where rollout's would not.
    by_own_command = candidate.policy.own_reboot_command
    if not (facts.may_reboot or by_own_command):
        return findings.NoSudo(facts.host.user, facts.reboot_refusal)
    if facts.inhibited_by:
        return findings.ShutdownInhibited(facts.inhibited_by)
    if facts.detection.blocked and not by_own_command:
        return findings.RebootBlocked(facts.detection.blocked)
    if facts.scheduled_shutdown:
        return findings.ShutdownScheduled(facts.scheduled_shutdown)
    return None


def _why_rival(candidate: Candidate, facts: HostFacts) -> NodeFinding | None:
    ignored = candidate.policy.gates.ignored_rivals
    rivals = (rival for rival in _rivals(candidate, facts) if rival.rival not in ignored)
    return next(rivals, None)


def _rivals(
    candidate: Candidate, facts: HostFacts
) -> Iterator[findings.RivalMark | findings.RivalPod | findings.RivalOnHost]:
    yield from marks_of_rivals(candidate.node)
    if candidate.upgraded_by:
        yield findings.RivalPod(Rival.UPGRADE_CONTROLLER, candidate.upgraded_by)
    if facts.locksmithd_active:
        yield findings.RivalOnHost(Rival.LOCKSMITHD)
    if facts.zincati_reboots:
        yield findings.RivalOnHost(Rival.ZINCATI, facts.zincati_strategy)
    for rival in facts.reboots_itself:
        yield findings.RivalOnHost(rival)


def _why_own_node(candidate: Candidate, _facts: HostFacts) -> NodeFinding | None:
    own = candidate.inputs.own
    return own.finding if own and own.name == candidate.node.name else None


_NODE_RULES = (
    _why_deselected,
    _why_unsupported,
    _why_deleting,
    _why_not_ready,
    _why_marks_unknown,
    _why_cordoned,
    _why_in_maintenance,
    _why_paused,
)
_HOST_RULES = (
    _why_no_rollback,
    _why_no_update,
    _why_status_unknown,
    _why_held_back,
    _why_reboot_blocked,
    _why_rival,
    _why_own_node,
)


def why_excluded(candidate: Candidate) -> NodeFinding | None:
    for node_rule in _NODE_RULES:
        finding = node_rule(candidate)
        if finding:
            return finding
    facts = candidate.facts
    if facts is None:
        return _why_without_facts(candidate)
    for host_rule in _HOST_RULES:
        finding = host_rule(candidate, facts)
        if finding:
            return finding
    return None


def exclusion(candidate: Candidate) -> Exclusion | None:
    finding = why_excluded(candidate)
    if finding is None:
        return None
    # A rollback leaves the newest version on purpose.
    needs_standing = finding.kind is ExclusionReason.NO_UPDATE and not candidate.policy.rollback
    return Exclusion(
        node=candidate.node.name,
        reason=finding.kind,
        message=text(finding),
        pool=candidate.pool,
        update=update_standing(candidate) if needs_standing else None,
        fix=fix_of(finding),
        version=findings.held_version(finding),
        brief=brief_of(finding),
    )


def update_standing(candidate: Candidate) -> UpdateStanding | None:
    """Return None if the host may need a reboot."""
    facts = candidate.facts
    if facts is None or not facts.counts_as_unstaged:
        return None
    inputs = candidate.inputs
    return inputs.versions.standing(candidate.node, facts, inputs.longest_silence)


def locate_own_node(own: OwnPod, pod: Pod | None, nodes: Iterable[Node]) -> OwnNode | None:
    """Return this process's node, and whether its pod could run elsewhere.

    None outside the cluster, or if nothing says where.
    """
    node_by_name = {node.name: node for node in nodes}
    name = own.node_variable
    if not name:
        name = _find_by_boot_id(own.boot_id, node_by_name.values())
    if not name and pod:
        # Another cluster may have a pod of that name.
        name = pod.node
    if name not in node_by_name:
        return None
    # Assume that a process without a pod could run anywhere.
    demand = PodDemand.of(pod, ()) if pod else PodDemand((), (), ())
    other_nodes = (node for node in node_by_name.values() if node.name != name)
    has_place_elsewhere = any(demand.admits(node) for node in other_nodes)
    return OwnNode(name, own.key if pod else "", is_only_place=not has_place_elsewhere)


def _find_by_boot_id(boot_id: str, nodes: Iterable[Node]) -> str:
    """Return empty unless exactly one node has this boot ID."""
    if not boot_id:
        return ""
    names = [node.name for node in nodes if node.boot_id == boot_id]
    return names[0] if len(names) == 1 else ""
