"""The second stage: from what was gathered to a plan, and to its run; or a saved plan, held against the cluster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import Allow, Skip
from rollout.cli.stages import gather, refusals
from rollout.cli.stages.gather import close_labels, first_label
from rollout.cli.stages.journal import past_runs
from rollout.cli.stages.lock import glance_at_lock
from rollout.cli.stages.session import Gathered, Run, SavedPlan, Session, run_of
from rollout.cli.terminal import say, show, show_lines, shown_meanwhile
from rollout.errors import PlanFileError, StalePlanError
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import Continuation, Situation, continuation, pending_nodes
from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import Kept
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.plan import ExclusionReason, RolloutPlan, WarningKind
from rollout.model.policy import Policy
from rollout.model.progress import excluded_by_trouble
from rollout.model.text import counted, printable, shortened
from rollout.planning.eligibility.selector import parse_selector
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.continuation import without_accepted_blockers
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan.finish_by import Finish, smallest_limit
from rollout.planning.plan.rules import relaxed_rules
from rollout.planning.plan.staleness import Difference, changes
from rollout.planning.play.pace import Pace
from rollout.report.plan_screen import brief_text, file_text
from rollout.report.sentences import extent
from rollout.report.unfinished import older_failures, resume_text

_MOST_CHANGES = 10


def load_saved(file: Path) -> SavedPlan:
    """Return a saved plan, whole and as it was saved; `PlanFileError` otherwise."""
    return SavedPlan(decode_plan(_read(file), str(file)), str(file))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {path}: {error.strerror}",
            hint="Save one with: rollout plan --out FILE. Nodes are chosen with --node NAME.",
        ) from error


def gather_for_run(session: Session) -> Gathered:
    """Gather all that a plan is made of; refused without the rights, or beside an unfinished rollout."""
    refusals.refuse_without_rights(session, unattended=session.operating)
    snapshot = gather.read_cluster(session)
    refusals.refuse_unfinished(session, snapshot.nodes)
    return Gathered(snapshot, gather.ask_hosts(session, snapshot.nodes))


def planned_run(session: Session, gathered: Gathered) -> Run:
    """Return what is to be run, after showing it; an unattended process shows it where something is to be done."""
    decided, saved = decide(session, gathered), session.saved
    if not (session.as_json or session.operating):
        name = saved.file if saved and decided.waves else ""
        show(file_text(decided, name, session.width) if name else shown(session, gathered, decided))
    # people have just been shown them
    conceded = warn_of_relaxed_rules(decided.policy, "the saved plan has") if saved and session.as_json else ()
    return run_of(session, gathered, decided, gathered.targets.number_of(decided.selection), conceded)


def planned_rest(session: Session, unfinished: Unfinished, *, retry: bool = False) -> Run:
    """Return what an interrupted rollout has left to run, after showing it; refuse what stands in its way."""
    nodes, rules = session.settings.nodes, session.policy
    snapshot = gather.read_cluster(session)
    refusals.refuse_another_cluster(unfinished.record.plan, snapshot.identity)
    # what is begun is finished in any case
    refusals.refuse_without_rights(session, unattended=session.operating and not unfinished.begun)
    targets = gather.ask_named(session, snapshot.nodes, pending_nodes(unfinished, retry_failed=retry))
    now, past = wiring.system_clock().now(), past_runs(snapshot.identity)
    situation = Situation(
        *(snapshot, targets.hosts, targets.observations, now, past, targets.own_node, session.operating, session.proven)
    )
    skip, held = Skip.BLOCKED in (nodes.skip or ()), Allow.HELD in nodes.allow
    rest = continuation(unfinished, situation, retry_failed=retry, skip_blocked=skip, include_held=held)
    gathered = Gathered(snapshot, targets)
    conceded = warn_of_relaxed_rules(rules, "the interrupted rollout has")
    _show_rest(session, unfinished, rest, gathered, retry=retry)
    if session.as_json:
        warn_of_held(rest.plan)
    asked_about = without_accepted_blockers(rest.plan, unfinished.record.plan)
    blocked = ""
    if unfinished.begun:  # taken to their end, whatever keeps others from being begun
        blocked = refusals.why_blocked(session, asked_about)
    else:
        refusals.refuse_unfit(session, asked_about)
    inherited = replace(rest.inherited, blocked=blocked)
    return run_of(session, gathered, rest.plan, rest.selected, conceded, inherited)


def _show_rest(
    session: Session, unfinished: Unfinished, rest: Continuation, gathered: Gathered, *, retry: bool
) -> None:
    """Show what is gone on with; where standard output is for programs, warn of what is not as it should be."""
    if session.as_json:
        for line in older_failures(unfinished, rest.retried):
            say(f"warning: {line}")
        return
    lock = glance_at_lock(session.api, session.namespace)
    planned = {node.name for node in rest.plan.nodes}
    show_lines(resume_text(unfinished, lock, planned, rest.inherited, retry=retry))
    show("\n" + shown(session, gathered, rest.plan))


def decide(session: Session, gathered: Gathered) -> RolloutPlan:
    """Make a plan; or return the saved one with what stands in its way now, `StalePlanError` where it fits no more."""
    policy, nodes, saved = session.policy, gathered.snapshot.nodes, session.saved
    labels = dict.fromkeys((policy.spread_by, *(pool.spread_by or "" for pool in policy.pools)))
    useless = filter(None, (useless_spreading(nodes, label) for label in labels))
    for warning in (
        *useless,
        *_useless_control_plane(nodes, policy.control_plane_selector),
        *_idle_gates(policy),
    ):
        say(f"warning: {warning}")
    inputs = inputs_of(session, gathered)
    with stage("plan") as note, shown_meanwhile("making the plan"):
        fresh = build_plan(inputs)
        note(f"{extent(fresh)}, {len(fresh.excluded)} left out, {counted(len(fresh.blockers), 'blocker')}")
    if saved is None:
        return fresh
    _refuse_stale(saved.plan, inputs)
    return replace(saved.plan, blockers=fresh.blockers, warnings=fresh.warnings)


def limit_for(session: Session, gathered: Gathered, date: datetime) -> Finish:
    """Return the plan with the fewest nodes away at once that is done by then."""
    with shown_meanwhile("looking for the smallest --max-unavailable"):
        return smallest_limit(inputs_of(session, gathered), date)


def finish_text(end: Finish, date: datetime) -> str:
    """Return when it is done with this limit; where that is too late, what takes longest."""
    if not end.plan.waves:
        return "nothing is to be done"
    ends = f"about {end.at.astimezone():%a %Y-%m-%d %H:%M %Z}" if end.at else "not in the next two years of windows"
    if end.is_by(date):
        return f"done by {date.astimezone():%a %Y-%m-%d %H:%M %Z} with --max-unavailable {end.limit}: {ends}"
    why = f"; {end.obstacle}" if end.at else ""
    limit = f"--max-unavailable {end.limit}"
    return f"not done by {date.astimezone():%a %Y-%m-%d %H:%M %Z}, whatever the limit: {ends} with {limit}{why}"


def inputs_of(session: Session, gathered: Gathered) -> PlanInputs:
    """Return all that a plan is made from, at this moment."""
    return PlanInputs(
        snapshot=gathered.snapshot,
        observations=gathered.targets.observations,
        selected=gathered.targets.selected,
        selection=session.selection,
        policy=session.policy,
        created_at=wiring.system_clock().now(),
        past=past_runs(gathered.snapshot.identity),
        own_node=gathered.targets.own_node,
        unattended=session.operating,
        proven=session.proven,
    )


def _refuse_stale(saved: RolloutPlan, fresh: PlanInputs) -> None:
    differences = tuple(_grouped(changes(saved, fresh)))
    if differences:
        only, details = (f": {differences[0]}", ()) if len(differences) == 1 else ("", differences)
        raise StalePlanError(
            f"the plan {saved.plan_id} no longer matches the cluster{only}",
            details=details,
            hint="Make a new one with `rollout plan --out FILE`, and review it.",
        )


def _grouped(differences: Sequence[Difference]) -> Iterator[str]:
    """Yield a line for each kind of difference, with the nodes that it is of; what is of one node alone in full."""
    alike: dict[str, list[Difference]] = {}
    for difference in differences:
        alike.setdefault(difference.what, []).append(difference)
    for what, of_nodes in list(alike.items())[:_MOST_CHANGES]:
        names = [difference.node for difference in of_nodes]
        yield printable(str(of_nodes[0])) if len(names) == 1 else f"{printable(what)}: {shortened(names)}"
    if len(alike) > _MOST_CHANGES:
        yield f"and {len(alike) - _MOST_CHANGES} other differences"


def shown(session: Session, gathered: Gathered, plan: RolloutPlan) -> str:
    """Return what is going to be run, in the few lines that stand before a question."""
    where, step = where_of(session, plan), next_without_waves(plan, session.settings)
    return brief_text(plan, zones=zones(gathered.snapshot), width=session.width, where=where, next_step=step)


def next_without_waves(plan: RolloutPlan, settings: Given) -> str:
    """Return the command that tells why nodes could not be planned; empty where there is a wave, or no such node."""
    reasons = {node.reason for node in excluded_by_trouble(plan.excluded)} - {ExclusionReason.DEFERRED}
    if plan.waves or not reasons:
        return ""
    command = "rollout status" if reasons == {ExclusionReason.VERSION_HELD} else "rollout doctor"
    return settings.repeated(command)


def where_of(session: Session, plan: RolloutPlan) -> str:
    """Return what the operator calls the cluster, with its address."""
    cluster = session.settings.cluster
    name = cluster.name or wiring.context_of(cluster)
    return f"{name} ({plan.cluster.server})" if name else plan.cluster.server


def zones(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Each node's zone, for tables."""
    return {node.name: node.zone for node in snapshot.nodes}


def warn_of_relaxed_rules(policy: Policy, origin: str) -> tuple[str, ...]:
    """Warn of what these rules give up, on standard error whatever the output is; the same as sentences."""
    sentences = tuple(f"{origin} {sentence}" for sentence in relaxed_rules(policy))
    for sentence in sentences:
        say(f"warning: {sentence}")
    return sentences


def _idle_gates(policy: Policy) -> Iterator[str]:
    """Yield a sentence for settings that do nothing without another.

    Who gives them believes in a gate that is not there.
    """
    gates = policy.gates
    if not gates.alerts.url and (gates.alerts.pattern or gates.alerts.match_only or gates.alerts.matchers):
        yield "a filter of alerts has no effect without alerts.prometheus-url: no alerts are read"
    if gates.windows.wait and not (
        gates.windows.windows or gates.windows.freezes or any(pool.window for pool in policy.pools)
    ):
        yield "gates.wait-window has no effect without --window: nodes start at any time"


def useless_spreading(nodes: Sequence[Node], label: str) -> str:
    """Return a warning where no node has the label of `--spread-by`, so that it keeps nothing apart; else empty."""
    if not label or any(label in node.labels for node in nodes):
        return ""
    return f"--spread-by has no effect: {close_labels(label, nodes)}"


def _useless_control_plane(nodes: Sequence[Node], selector: str) -> Iterator[str]:
    """Yield a warning where `waves.control-plane-selector` is given and chooses no node."""
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        yield f"waves.control-plane-selector has no effect: {close_labels(first_label(selector), nodes)}"


def warn_of_held(plan: RolloutPlan) -> None:
    """Say which nodes a plan leaves out for what was seen of their version, one sentence a version."""
    held = [left for left in plan.excluded if left.reason is ExclusionReason.VERSION_HELD]
    for message in dict.fromkeys(left.message for left in held):
        nodes = sum(left.message == message for left in held)
        say(f"warning: {counted(nodes, 'node')} left out: {printable(message)}")


def despite_hold(plan: RolloutPlan) -> str:
    """Return what a question adds where nodes are taken in spite of their version's hold; empty where none is."""
    nodes = sum(warning.kind is WarningKind.VERSION_HELD for warning in plan.warnings)
    return f", {nodes} of them into a version that is held" if nodes else ""


def cluster_copy(gathered: Gathered, kept: Kept, policy: Policy) -> bytes:
    """Return what a plan by these rules was made of."""
    return copy_document(kept, gathered.targets.observations, _pace(gathered, policy))


def _pace(gathered: Gathered, policy: Policy) -> CopiedPace:
    snapshot = gathered.snapshot
    pace = Pace.of(snapshot.nodes, past_runs(snapshot.identity), snapshot.pods)
    graces: dict[str, int] = {}
    for pod in snapshot.pods:
        # those that belong to their node come back with it: that is part of its reboot
        if pod.owner and pod.owner.kind not in ("DaemonSet", "Node"):
            grace = policy.drain.grace_of(pod.grace_period)
            graces[pod.owner.uid] = max(grace, graces.get(pod.owner.uid, 0))
    return CopiedPace(pace.reboot(0, 1), _owners(pace, graces))


def _owners(pace: Pace, graces: Mapping[str, int]) -> Mapping[str, tuple[int, int]]:
    return {uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()}
