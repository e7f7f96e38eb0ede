"""The second stage: from what was gathered to a plan, and to its run; or a saved plan, held against the cluster."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import Allow, Skip
from rollout.cli.stages import gather, refusals
from rollout.cli.stages.gather import close_labels
from rollout.cli.stages.observers import past_runs
from rollout.cli.stages.session import Run, Session, Targets
from rollout.cli.terminal import show, show_lines, shown_meanwhile, warn
from rollout.errors import BlockedError, PlanFileError, StalePlanError
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import continuation, pending_nodes
from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import Kept
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import excluded_by_trouble
from rollout.model.text import counted, printable, shortened
from rollout.planning.eligibility.selector import parse_selector
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.continuation import without_accepted_blockers
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan
from rollout.planning.plan.finish_by import Finish
from rollout.planning.plan.rules import relaxed_rules
from rollout.planning.plan.staleness import changes
from rollout.planning.play.pace import Pace
from rollout.report.plan_screen import brief_text, file_text
from rollout.report.sentences import extent, grouped
from rollout.report.unfinished import older_failures, resume_text

_MOST_CHANGES = 10


def load_saved(file: Path) -> RolloutPlan:
    """Return a saved plan, whole and as it was saved; `PlanFileError` otherwise."""
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {file}: {error.strerror}",
            hint="Save one with: rollout plan --out FILE. Nodes are chosen with --node NAME.",
        ) from error
    return decode_plan(content, str(file))


def planned_run(session: Session) -> Run:
    """Return what is to be run, after showing it; an unattended process shows it where something is to be done.

    Refused without the rights, or beside an unfinished rollout.
    """
    refusals.refuse_without_rights(session, unattended=session.operating)
    snapshot = gather.read_cluster(session)
    refusals.refuse_unfinished(session, snapshot.nodes)
    targets = gather.ask_hosts(session, snapshot.nodes)
    session.meter.observe_hosts(targets.observations)
    session.meter.observe_memory(snapshot.memory)
    plan = decide(inputs_of(session, snapshot, targets), session.saved)
    run = Run(session, plan, targets, len(targets.meant))
    if session.as_json:
        # people are shown them
        warn(*conceded(run))
    elif plan.waves or run.deferred or not session.operating:
        is_whole = session.saved and plan.waves
        show(file_text(plan, session.saved_in, session.width) if is_whole else shown(session, snapshot, plan))
    return run


def planned_rest(session: Session, unfinished: Unfinished, *, retry: bool = False) -> Run:
    """Return what an interrupted rollout has left to run, after showing it; refuse what stands in its way."""
    nodes, snapshot = session.settings.nodes, gather.read_cluster(session)
    before, here = unfinished.record.plan, snapshot.identity.uid
    if before is not None and here and before.cluster.uid not in ("", here):
        # as a backup that was restored here has it
        raise BlockedError(
            f"the record of the rollout {before.plan_id} is of another cluster, {before.cluster.server}: it is not "
            "resumed",
            hint="If it came with a backup that was restored here: rollout abort removes it.",
        )
    # what is begun is finished in any case
    refusals.refuse_without_rights(session, unattended=session.operating and not unfinished.begun)
    targets = gather.ask_hosts(session, snapshot.nodes, named=pending_nodes(unfinished, retry_failed=retry))
    session.meter.observe_hosts(targets.observations, among_others=True)
    inputs = inputs_of(session, snapshot, targets)
    skip, held = Skip.BLOCKED in (nodes.skip or ()), Allow.HELD in nodes.allow
    rest = continuation(unfinished, inputs, targets.hosts, retry_failed=retry, skip_blocked=skip, include_held=held)
    run = Run(session, rest.plan, targets, rest.selected, rest.inherited)
    warn(*conceded(run))
    if session.as_json:
        warn(*older_failures(unfinished, rest.retried))
        warn_of_held(rest.plan)
    else:
        lock, planned = refusals.glance_at_lock(session), {node.name for node in rest.plan.nodes}
        show_lines(resume_text(unfinished, lock, planned, rest.inherited, retry=retry))
        show("\n" + shown(session, snapshot, rest.plan))
    asked_about = without_accepted_blockers(rest.plan, unfinished.record.plan)
    # those that are begun are taken to their end, whatever keeps others from being begun
    blocked = refusals.why_blocked(session, asked_about, goes_on=bool(unfinished.begun))
    return replace(run, inherited=replace(rest.inherited, blocked=blocked))


def gathered(session: Session, kept: Kept | None = None) -> PlanInputs:
    """Gather everything that a plan is made of, of the selected nodes' hosts; into `kept` goes what the API said."""
    snapshot = gather.read_cluster(session, kept)
    return inputs_of(session, snapshot, gather.ask_hosts(session, snapshot.nodes))


def inputs_of(session: Session, snapshot: ClusterSnapshot, targets: Targets) -> PlanInputs:
    """Return all that a plan is made from, at this moment."""
    return PlanInputs(
        snapshot=snapshot,
        observations=targets.observations,
        selected=targets.selected,
        selection=session.selection,
        policy=session.policy,
        created_at=wiring.now(),
        past=past_runs(snapshot.identity),
        own_node=targets.own_node,
        unattended=session.operating,
        proven=session.proven,
    )


def decide(inputs: PlanInputs, saved: RolloutPlan | None = None) -> RolloutPlan:
    """Make a plan; or return the saved one with what stands in its way now, `StalePlanError` where it fits no more."""
    warn(*_useless(inputs.policy, inputs.snapshot.nodes))
    with stage("plan") as note, shown_meanwhile("making the plan"):
        fresh = build_plan(inputs)
        note(f"{extent(fresh)}, {len(fresh.excluded)} left out, {counted(len(fresh.blockers), 'blocker')}")
    if saved is None:
        return fresh
    _refuse_stale(saved, inputs)
    return replace(saved, blockers=fresh.blockers, warnings=fresh.warnings)


def finish_text(end: Finish, date: datetime) -> str:
    """Return when it is done with this limit; where that is too late, what takes longest."""
    if not end.plan.waves:
        return "nothing is to be done"
    day, limit = f"{date.astimezone():%a %Y-%m-%d %H:%M %Z}", f"--max-unavailable {end.limit}"
    ends = f"about {end.at.astimezone():%a %Y-%m-%d %H:%M %Z}" if end.at else "not in the next two years of windows"
    if end.is_by(date):
        return f"done by {day} with {limit}: {ends}"
    return f"not done by {day}, whatever the limit: {ends} with {limit}{f'; {end.obstacle}' if end.at else ''}"


def _refuse_stale(saved: RolloutPlan, fresh: PlanInputs) -> None:
    """`StalePlanError` with a line for each kind of difference, and the nodes that it is of."""
    alike = grouped((difference.what, difference) for difference in changes(saved, fresh))
    lines = [
        # what is of one node alone in full
        printable(str(same[0])) if len(same) == 1 else f"{printable(what)}: {shortened([one.node for one in same])}"
        for what, same in alike.items()
    ]
    if len(lines) > _MOST_CHANGES:
        lines[_MOST_CHANGES:] = [f"and {len(lines) - _MOST_CHANGES} other differences"]
    if lines:
        hint = "Make a new one with `rollout plan --out FILE`, and review it."
        raise StalePlanError(f"the plan {saved.plan_id} no longer matches the cluster", details=lines, hint=hint)


def shown(session: Session, snapshot: ClusterSnapshot, plan: RolloutPlan) -> str:
    """Return what is going to be run, in the few lines that stand before a question."""
    step = next_without_waves(plan, session.settings)
    return brief_text(plan, zones=zones(snapshot), width=session.width, where=session.place, next_step=step)


def next_without_waves(plan: RolloutPlan, settings: Given) -> str:
    """Return the command that tells why nodes could not be planned; empty where there is a wave, or no such node."""
    reasons = {node.reason for node in excluded_by_trouble(plan.excluded)} - {ExclusionReason.DEFERRED}
    if plan.waves or not reasons:
        return ""
    command = "rollout status" if reasons == {ExclusionReason.VERSION_HELD} else "rollout doctor"
    return settings.repeated(command)


def zones(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Each node's zone, for tables."""
    return {node.name: node.zone for node in snapshot.nodes}


def conceded(run: Run) -> Sequence[str]:
    """Return what rules that were not given just now give up, as sentences."""
    origin = "the interrupted rollout has" if run.inherited else "the saved plan has" if run.session.saved else ""
    return [f"{origin} {sentence}" for sentence in relaxed_rules(run.session.policy)] if origin else []


def _useless(policy: Policy, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a sentence for rules that do nothing, on which whoever gives them counts."""
    for label in dict.fromkeys((policy.spread_by, *(pool.spread_by for pool in policy.pools))):
        if label and not any(label in node.labels for node in nodes):
            yield f"--spread-by has no effect: {close_labels(label, nodes)}"
    selector, gates = policy.control_plane_selector, policy.gates
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        yield f"waves.control-plane-selector has no effect: {close_labels(selector, nodes)}"
    if gates.alerts.matchers and not gates.alerts.url:
        yield "alerts.matchers has no effect without alerts.prometheus-url: no alerts are read"


def warn_of_held(plan: RolloutPlan) -> None:
    """Say which nodes a plan leaves out for what was seen of their version, one sentence a version."""
    held = grouped((left.message, left) for left in plan.excluded if left.reason is ExclusionReason.VERSION_HELD)
    warn(*(f"{counted(len(nodes), 'node')} left out: {printable(message)}" for message, nodes in held.items()))


def cluster_copy(inputs: PlanInputs, kept: Kept, *, anonymous: bool) -> bytes:
    """Return what a plan was made of; `anonymous`: with names hidden by a key that is forgotten here."""
    key = secrets.token_bytes(32) if anonymous else b""
    snapshot = inputs.snapshot
    pace = Pace.of(snapshot.nodes, inputs.past, snapshot.pods)
    graces: dict[str, int] = {}
    for pod in snapshot.pods:
        # those that belong to their node come back with it: that is part of its reboot
        if pod.owner and pod.owner.kind not in ("DaemonSet", "Node"):
            grace = inputs.policy.drain.grace_of(pod.grace_period)
            graces[pod.owner.uid] = max(grace, graces.get(pod.owner.uid, 0))
    owners = {uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()}
    return copy_document(kept, inputs.observations, CopiedPace(pace.reboot(0, 1), owners), key)
