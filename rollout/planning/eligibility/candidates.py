"""Which nodes take part: rules in a fixed order, the first that objects gives the reason."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain

from rollout.model import marks
from rollout.model.cluster import Node, Pod, ReadyState
from rollout.model.demand import Demand
from rollout.model.detection import Answer, Source
from rollout.model.host import (
    HostFacts,
    HostObservation,
    ProbeFailure,
    ProbeFailureKind,
    UpdateOperation,
    UpdateStanding,
)
from rollout.model.node_kind import why_removed, why_unsupported
from rollout.model.node_marks import misunderstanding, why_paused
from rollout.model.own_node import OwnNode, OwnPod
from rollout.model.plan import Exclusion, ExclusionReason, RolloutPlan
from rollout.model.policy import ControlPlaneOrder, Policy, Selection
from rollout.model.reboot_request import detect_flag, unasked, way_to_judge
from rollout.model.rivals import SELF_REBOOTS
from rollout.model.selectors import parse_selector
from rollout.planning.eligibility.judgement import Objection, Rules, objection
from rollout.planning.eligibility.rivals import LOCKSMITHD, UPGRADE_CONTROLLER, ZINCATI, marks_on

# In these a reboot disturbs no update that is under way.
_RESTING = frozenset({UpdateOperation.IDLE, UpdateOperation.NOT_ASKED, UpdateOperation.UNKNOWN})

_REASONS = {
    ProbeFailureKind.WRONG_HOST: ExclusionReason.WRONG_HOST,
    ProbeFailureKind.UNREPORTED: ExclusionReason.UNKNOWN_STATUS,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A selected node with what its host said; `observation` is None where it has no host.

    `policy` is what holds in its `pool`. `upgraded_by` is a pod with which the
    system-upgrade-controller is changing it now.
    """

    node: Node
    observation: HostObservation | None
    policy: Policy
    rules: Rules
    pool: str = ""
    upgraded_by: str = ""

    @property
    def facts(self) -> HostFacts | None:
        """What the host said, if it said anything."""
        return self.observation if isinstance(self.observation, HostFacts) else None


def excluded_by_name(name: str, selection: Selection) -> bool:
    """Whether `--exclude` names this node, literally or by a shell pattern."""
    return any(fnmatchcase(name, pattern) for pattern in selection.exclude)


def asked_for(plan: RolloutPlan) -> Mapping[str, str]:
    """Return the nodes that a plan was made for, each with its pool: its percentages are of them."""
    named = {entry.node: entry.pool for entry in plan.excluded} | {
        node.name: node.pool for node in plan.nodes
    }
    return {
        name: pool for name, pool in named.items() if not excluded_by_name(name, plan.selection)
    }


def is_control_plane(node: Node, policy: Policy) -> bool:
    """Whether the node's role says so, or `waves.control-plane-selector`."""
    selector = policy.control_plane_selector
    return node.is_control_plane or (bool(selector) and _parsed(selector).matches(node.labels))


_parsed = lru_cache(maxsize=8)(parse_selector)


def _excluded(candidate: Candidate) -> Objection | None:
    if excluded_by_name(candidate.node.name, candidate.rules.selection):
        return ExclusionReason.EXCLUDED, "left out by --exclude"
    policy = candidate.policy
    if policy.control_plane is ControlPlaneOrder.EXCLUDE and is_control_plane(
        candidate.node, policy
    ):
        return ExclusionReason.EXCLUDED, "control-plane node, left out by --control-plane exclude"
    return None


def _unsupported(candidate: Candidate) -> Objection | None:
    why = why_unsupported(candidate.node)
    return (ExclusionReason.UNSUPPORTED, why) if why else None


def _deleting(candidate: Candidate) -> Objection | None:
    why = why_removed(candidate.node)
    return (ExclusionReason.DELETING, why) if why else None


def _not_ready(candidate: Candidate) -> Objection | None:
    node = candidate.node
    if node.is_ready:
        return None
    state = (
        "its kubelet has stopped reporting"
        if node.ready is ReadyState.UNKNOWN
        else "it is not Ready"
    )
    return (
        ExclusionReason.NOT_READY,
        f"{state}{': ' + node.ready_message if node.ready_message else ''}",
    )


def _cordoned(candidate: Candidate) -> Objection | None:
    node = candidate.node
    if not node.unschedulable or candidate.policy.include_cordoned:
        return None
    run = node.annotations.get(marks.RUN)
    if run and node.annotations.get(marks.CORDONED_BY_US) == "true":
        return (
            ExclusionReason.LEFT_CORDONED,
            (
                f"cordoned by the unfinished rollout {run} in its phase"
                f" {node.annotations.get(marks.PHASE, 'unknown')}"
            ),
        )
    in_hand = next((sentence for _rival, sentence in marks_on(node)), "")
    way = "--allow cordoned reboots it too, and leaves it cordoned"
    return ExclusionReason.CORDONED, (
        f"cordoned; {in_hand}" if in_hand else f"cordoned by an operator ({way})"
    )


def _unknown_marks(candidate: Candidate) -> Objection | None:
    if why := misunderstanding(candidate.node):
        return (
            ExclusionReason.UNKNOWN_MARKS,
            f"{why}: another version of rollout may be working on it",
        )
    return None


def _paused(candidate: Candidate) -> Objection | None:
    why = why_paused(candidate.node, candidate.rules.now)
    return (ExclusionReason.PAUSED, why) if why else None


def _unheard(candidate: Candidate) -> Objection:
    """Why there are no facts of its host."""
    observation = candidate.observation
    if not isinstance(observation, ProbeFailure):
        return ExclusionReason.UNREACHABLE, "no host in the inventory matches this Node"
    hint = f" ({observation.hint})" if observation.hint else ""
    return _REASONS.get(observation.kind, ExclusionReason.UNREACHABLE), observation.message + hint


def _no_update(candidate: Candidate, facts: HostFacts) -> Objection | None:
    detection = facts.detection
    is_resting = facts.update.operation in _RESTING
    if (
        detection.needs_reboot
        or detection.unanswered
        or (is_resting and candidate.policy.reboot_idle)
    ):
        return None
    answers = [sign.detail for sign in detection.signs if sign.answer is Answer.NOT_NEEDED]
    sentence = "; ".join(answers) or "nothing is asked whether it needs a reboot"
    way = _way_to_reboot(candidate.node, facts) if is_resting else ""
    return ExclusionReason.NO_UPDATE, sentence + way


def _way_to_reboot(node: Node, facts: HostFacts) -> str:
    """How it would be rebooted anyway: by the annotation that stands on it, or just so."""
    if Source.ANNOTATION in unasked(node, facts):
        return (
            " (its annotation reboot-needed counts with"
            f" {detect_flag(facts.sources, [Source.ANNOTATION])})"
        )
    return " (--allow idle reboots it anyway)"


def _unknown_status(candidate: Candidate, facts: HostFacts) -> Objection | None:
    if not (silent := facts.detection.unanswered):
        return None
    way = way_to_judge(facts, unasked(candidate.node, facts))
    return ExclusionReason.UNKNOWN_STATUS, "; ".join(
        (*(sign.detail for sign in silent), *([way] if way else []))
    )


def _remembered(candidate: Candidate, facts: HostFacts) -> Objection | None:
    return objection(candidate.node.name, facts.detection.version, candidate.rules)


def _not_rebooting(candidate: Candidate, facts: HostFacts) -> Objection | None:
    """Return what keeps the host from a plain reboot."""
    by_own_command = candidate.policy.own_reboot_command
    if not (facts.may_reboot or by_own_command):
        return (
            ExclusionReason.NO_SUDO,
            facts.reboot_refusal or f"{facts.host.user} may not run systemctl reboot",
        )
    if by := facts.inhibited_by:
        return (
            ExclusionReason.INHIBITED,
            f"its shutdown is blocked by {by} (see systemd-inhibit --list)",
        )
    if (why := facts.detection.blocked) and not by_own_command:
        return ExclusionReason.INHIBITED, why
    if pending := facts.shutdown_pending:
        return ExclusionReason.SHUTDOWN_PENDING, f"{pending} (`shutdown -c` on the host cancels it)"
    return None


def _rival(candidate: Candidate, facts: HostFacts) -> Objection | None:
    ignored = candidate.policy.gates.ignored_rivals
    marks = (mark for mark in _marks_of_rivals(candidate, facts) if mark[0] not in ignored)
    return next(
        ((ExclusionReason.RIVAL, f"{message}, or --allow {name}") for name, message in marks), None
    )


def _marks_of_rivals(candidate: Candidate, facts: HostFacts) -> Iterator[tuple[str, str]]:
    yield from marks_on(candidate.node)
    if candidate.upgraded_by:
        yield (
            UPGRADE_CONTROLLER,
            f"the system-upgrade-controller is at work on it: pod {candidate.upgraded_by}",
        )
    if facts.locksmithd_active:
        way_out = "sudo systemctl mask --now locksmithd"
        yield LOCKSMITHD, f"locksmithd runs on the host and reboots it by itself ({way_out})"
    if facts.zincati_reboots:
        way_out = "rollout fleetlock has it ask before, or: sudo systemctl mask --now zincati"
        yield (
            ZINCATI,
            f"Zincati runs on the host and reboots it by its strategy {facts.zincati} ({way_out})",
        )
    for rival in facts.reboots_itself:
        act, way_out = SELF_REBOOTS[rival]
        yield rival, f"{act} ({way_out})"


def _own(candidate: Candidate, _facts: HostFacts) -> Objection | None:
    own = candidate.rules.own
    return (own.reason, own.message) if own and own.name == candidate.node.name else None


_OF_NODES = (_excluded, _unsupported, _deleting, _not_ready, _unknown_marks, _cordoned, _paused)
_OF_HOSTS = (_no_update, _unknown_status, _remembered, _not_rebooting, _rival, _own)


def exclusion(candidate: Candidate) -> Exclusion | None:
    """Why this node does not take part, or None where it does."""
    facts = candidate.facts
    of_node = (rule(candidate) for rule in _OF_NODES)
    of_host = (rule(candidate, facts) for rule in _OF_HOSTS) if facts else (_unheard(candidate),)
    objection = next(filter(None, chain(of_node, of_host)), None)
    if objection is None:
        return None
    reason, message = objection
    update = update_standing(candidate) if reason is ExclusionReason.NO_UPDATE else None
    return Exclusion(candidate.node.name, reason, message, pool=candidate.pool, update=update)


def update_standing(candidate: Candidate) -> UpdateStanding | None:
    """Return the update state of a host; None if it waits for a reboot or its state is unknown."""
    facts = candidate.facts
    if facts is None or facts.detection.needs_reboot or facts.detection.unanswered:
        return None
    return candidate.rules.versions.standing(candidate.node, facts)


def located(own: OwnPod, pod: Pod | None, nodes: Iterable[Node]) -> OwnNode | None:
    """Which of the nodes a process in a pod stands on; None where it is none of them, or nothing says which.

    What the downward API says goes before the kernel, and that before the Pod as the API server has
    it: a namesake of it may live in another cluster.
    """
    present = {node.name: node for node in nodes}
    by_boot = [
        name for name, node in present.items() if own.boot_id and node.boot_id == own.boot_id
    ]
    name = own.node or (by_boot[0] if len(by_boot) == 1 else pod.node if pod else "")
    if name not in present:
        return None
    demand = Demand.of(pod, ()) if pod else Demand((), (), ())
    others = (node for node in present.values() if node.name != name)
    return OwnNode(
        name, own.key if pod else "", is_only_place=not any(demand.admits(node) for node in others)
    )
