"""The second stage: from what was gathered to a plan, and to its run; or a saved plan, held against the cluster."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import typer

from rollout.adapters.input_files import read_input
from rollout.adapters.local_files import write_whole
from rollout.cli import terminal, wiring
from rollout.cli.log import stage
from rollout.cli.settings.reading import PLANNED, Given
from rollout.cli.settings.schema import Allow, Skip
from rollout.cli.stages import gather, refusals
from rollout.cli.stages.gather import Run, Session, Targets, close_labels
from rollout.cli.stages.observers import past_runs
from rollout.cli.stages.status import rollout_beside, why_closed
from rollout.cli.terminal import say, show, show_lines, shown_meanwhile, warn
from rollout.errors import BlockedError, ExitCode, PlanFileError, StalePlanError, UsageError
from rollout.execution.record.memory import require_memory
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.continuation import continuation, pending_nodes
from rollout.gather.cluster.copying import CopiedPace, copy_document
from rollout.gather.cluster.snapshot import CachedPages
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.plan import ExclusionReason, RolloutPlan
from rollout.model.policy import Policy
from rollout.model.progress import excluded_by_trouble
from rollout.model.selectors import parse_selector
from rollout.model.text import counted, grouped, printable, shell_word, shortened
from rollout.planning.eligibility.candidates import is_control_plane
from rollout.planning.plan.build import PlanInputs, build_plan
from rollout.planning.plan.build import decide as decided
from rollout.planning.plan.continuation import without_accepted_blockers
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan, encode_plan
from rollout.planning.plan.explanation import explain
from rollout.planning.plan.finish_by import Finish, smallest_limit
from rollout.planning.plan.rules import relaxed_rules
from rollout.planning.plan.staleness import changes
from rollout.planning.play.pace import Pace
from rollout.report.markdown import plan_markdown
from rollout.report.plan_screen import (
    blocked_line,
    brief_text,
    consequence,
    explanation_text,
    file_text,
    plan_text,
)
from rollout.report.sentences import extent
from rollout.report.unfinished import resume_text

_MOST_CHANGES = 10
_WHOLE_PLAN = "rollout plan -o wide"
# Terminal lines that the question takes, and that the plan above it gets at least.
_QUESTION_LINES = 6
_LEAST_LINES = 8
_DOES_NOT_START = (
    "apply does not start beside it: first it has to end, or be undone by `rollout abort`."
)


def load_saved(file: Path) -> RolloutPlan:
    """Return a saved plan, whole and as it was saved; `PlanFileError` otherwise."""
    try:
        content = read_input(file, most=LARGEST_DOCUMENT)
    except OSError as error:
        raise PlanFileError(
            f"cannot read the plan {file}: {error.strerror}",
            hint="Save one with: rollout plan --out FILE. Nodes are chosen with --node NAME.",
        ) from error
    return decode_plan(content, str(file))


def planned_run(session: Session, *, asks: bool = False) -> Run:
    """Return what is to be run, after showing it; an unattended process shows it where something is to be done.

    Refused without the rights, or beside an unfinished rollout. If it `asks` before it changes
    anything, it may replace one that has no node in flight, and says so.
    """
    refusals.refuse_without_rights(session, unattended=session.unattended)
    snapshot = gather.read_cluster(session, warns=False)
    require_memory(snapshot.memory)
    replaced = refusals.refuse_unfinished(session, snapshot.nodes, asks=asks)
    targets = gather.ask_hosts(session, snapshot.nodes)
    if session.metrics:
        session.metrics.observe_hosts(targets.observations)
        session.metrics.observe_memory(snapshot.memory)
    plan = decide(inputs_of(session, snapshot, targets), session.saved)
    run = Run(session, plan, targets, len(targets.meant))
    if session.as_json:
        # people are shown them
        warn(*conceded(run))
    elif plan.waves or run.deferred or not session.unattended:
        is_saved = session.saved and plan.waves
        text = shown(session, snapshot, plan, _WHOLE_PLAN)
        show(file_text(plan, session.saved_in, session.width) if is_saved else text)
    if replaced:
        warn(replaced)
    return run


def planned_rest(session: Session, unfinished: Unfinished, *, retry: bool = False) -> Run:
    """Return what an interrupted rollout has left to run, after showing it; refuse what stands in its way."""
    nodes = session.settings.nodes
    is_begun = bool(unfinished.begun)
    snapshot = gather.read_cluster(session, warns=is_begun)
    if not is_begun:
        require_memory(snapshot.memory)
    before = unfinished.record.plan
    here = snapshot.identity.uid
    if before is not None and here and before.cluster.uid not in ("", here):
        # as a backup that was restored here has it
        raise BlockedError(
            f"the record of the rollout {before.plan_id} is of another cluster,"
            f" {before.cluster.server}: it is not resumed",
            hint="If it came with a backup that was restored here: rollout abort removes it.",
        )
    # what is begun is finished in any case
    refusals.refuse_without_rights(session, unattended=session.unattended, begins=not is_begun)
    targets = gather.ask_hosts(
        session, snapshot.nodes, named=pending_nodes(unfinished, retry_failed=retry)
    )
    if session.metrics:
        session.metrics.observe_hosts(targets.observations, among_others=True)
    inputs = inputs_of(session, snapshot, targets)
    skip = Skip.BLOCKED in (nodes.skip or ())
    held = Allow.HELD in nodes.allow
    rest = continuation(
        unfinished, inputs, targets.hosts, retry_failed=retry, skip_blocked=skip, include_held=held
    )
    run = Run(session, rest.plan, targets, rest.selected, rest.inherited)
    warn(*conceded(run))
    if session.as_json:
        warn_of_held(rest.plan)
    else:
        lock = refusals.glance_at_lock(session)
        planned = {node.name for node in rest.plan.nodes}
        show_lines(resume_text(unfinished, lock, planned, rest.inherited, retry=retry))
        again = " --retry-failed" if retry else ""
        show("\n" + shown(session, snapshot, rest.plan, f"rollout resume{again} -o wide"))
    asked_about = without_accepted_blockers(rest.plan, unfinished.record.plan)
    # those that are begun are taken to their end, whatever keeps others from being begun
    blocked = refusals.refuse_unfit(session, asked_about, goes_on=bool(unfinished.begun))
    return replace(run, inherited=replace(rest.inherited, blocked=blocked))


def gathered(session: Session, kept: CachedPages | None = None) -> PlanInputs:
    """Gather everything that a plan is made of. `kept` collects the answers of the API server.

    A user who only plans needs no right to read the memory.
    """
    snapshot = gather.read_cluster(session, kept)
    if not snapshot.memory.denied:
        require_memory(snapshot.memory)
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
        unattended=session.unattended,
        proven=session.proven,
    )


def decide(inputs: PlanInputs, saved: RolloutPlan | None = None) -> RolloutPlan:
    """Make a plan; or return the saved one with what stands in its way now, `StalePlanError` where it fits no more."""
    warn(*_useless(inputs.policy, inputs.snapshot.nodes))
    with stage("plan") as note, shown_meanwhile("making the plan"):
        fresh = build_plan(inputs)
        note(
            f"{extent(fresh)}, {len(fresh.excluded)} left out,"
            f" {counted(len(fresh.blockers), 'blocker')}"
        )
    if saved is None:
        return fresh
    _refuse_stale(saved, inputs)
    return replace(saved, blockers=fresh.blockers, warnings=fresh.warnings)


def finish_text(end: Finish, date: datetime) -> str:
    """Return when it is done with this limit; where that is too late, what takes longest."""
    if not end.plan.waves:
        return "nothing is to be done"
    day = f"{date.astimezone():%a %Y-%m-%d %H:%M %Z}"
    limit = f"--max-unavailable {end.limit}"
    ends = (
        f"about {end.at.astimezone():%a %Y-%m-%d %H:%M %Z}"
        if end.at
        else "not in the next two years of windows"
    )
    if end.is_by(date):
        return f"done by {day} with {limit}: {ends}"
    return (
        f"not done by {day}, whatever the limit: {ends} with"
        f" {limit}{f'; {end.obstacle}' if end.at else ''}"
    )


def preview(
    session: Session,
    inputs: PlanInputs,
    date: datetime | None,
    *,
    out: Path | None,
    markdown: Path | None,
    detailed: bool,
) -> ExitCode:
    """Make a plan, by the smallest limit that is done by the date if there is one; show and write it."""
    limit = ""
    is_late = False
    if date is not None:
        with shown_meanwhile("looking for the smallest --max-unavailable"):
            finish = smallest_limit(inputs, date)
        say(finish_text(finish, date))
        limit = f" --max-unavailable {finish.limit}"
        is_late = not finish.is_by(date)
        inputs = replace(inputs, policy=finish.plan.policy)
    planned = decide(inputs)
    blockers = refusals.refused(session, planned)
    places = zones(inputs.snapshot)
    output = session.settings.output
    document = encode_plan(planned)
    next_step = next_without_waves(planned, session.settings)
    if planned.waves and not (blockers or is_late):
        next_step = (
            f"rollout apply {shell_word(str(out))}"
            if out
            else session.settings.repeated("rollout apply") + limit
        )
    other, _ = rollout_beside(session, inputs.snapshot.nodes)
    beside = f"{other.sentence} {_DOES_NOT_START}" if other.is_first else ""
    if beside and output.as_json:
        say(f"{beside} See: {other.command}")
    width = output.width
    now = wiring.now()
    text = partial(
        plan_text, planned, zones=places, width=width, now=now, where=session.place, beside=beside
    )
    is_way_out = bool(beside) or not (planned.waves or other.lead)
    step = other.command if is_way_out and other.command else next_step
    blocked = "" if beside else blocked_line(blockers)
    names = [node.name for node in planned.nodes]
    output.show(document, partial(text, blocked=blocked, next_step=step), nodes=names)
    if out is not None:
        write_whole(out, document)
    if markdown is not None:
        write_whole(markdown, plan_markdown(planned, zones=places).encode())
    return ExitCode.BLOCKED if blockers or is_late else _ending(planned, detailed=detailed)


def _ending(planned: RolloutPlan, *, detailed: bool) -> ExitCode:
    """Return how it ends: with nothing waiting where any host answered; `detailed`: where every node was judged."""
    missing = excluded_by_trouble(planned.excluded)
    if not detailed:
        reasons = {exclusion.reason for exclusion in planned.excluded} - {ExclusionReason.EXCLUDED}
        return (
            ExitCode.PARTIAL
            if not planned.waves and reasons == {ExclusionReason.UNREACHABLE}
            else ExitCode.OK
        )
    if planned.waves or any(node.reason is ExclusionReason.DEFERRED for node in missing):
        return ExitCode.CHANGES
    return ExitCode.PARTIAL if missing else ExitCode.OK


def show_saved(file: Path, settings: Given, *, flags: tuple[object, ...]) -> None:
    """Show the plan as it was made; none of these flags may be given."""
    if any(flags):
        raise UsageError("a saved plan is shown as it is", hint="Drop the flags.")
    settings.refuse_typed(
        PLANNED, "cannot be used with a saved plan, which is shown as it is", "Drop them."
    )
    plan = load_saved(file)
    blocked = blocked_line(plan.blockers)
    next_step = f"rollout apply {shell_word(str(file))}" if plan.waves and not blocked else ""
    where = f"{plan.cluster.server}, made {plan.created_at}"
    width = settings.output.width
    now = wiring.now()
    text = partial(
        plan_text,
        plan,
        zones={},
        width=width,
        now=now,
        where=where,
        blocked=blocked,
        next_step=next_step,
    )
    settings.output.show(encode_plan(plan), text, nodes=[node.name for node in plan.nodes])
    if blocked:
        raise typer.Exit(ExitCode.BLOCKED)


def show_explanation(name: str, session: Session, inputs: PlanInputs) -> None:
    """Tell why a node is where it would be in a new plan."""
    if name not in {known.name for known in inputs.snapshot.nodes}:
        raise UsageError(
            f"there is no node {name}", hint=gather.close_names(name, inputs.snapshot.nodes)
        )
    decisions = decided(inputs)
    explanation = explain(decisions, name)
    text = partial(explanation_text, explanation, decisions.plan.estimate)
    session.settings.output.show(explanation, text, is_prose=True, nodes=[name])


def _refuse_stale(saved: RolloutPlan, fresh: PlanInputs) -> None:
    """`StalePlanError` with a line for each kind of difference, and the nodes that it is of."""
    alike = grouped((difference.what, difference) for difference in changes(saved, fresh))
    lines = [
        # what is of one node alone in full
        (
            printable(str(same[0]))
            if len(same) == 1
            else f"{printable(what)}: {shortened([one.node for one in same])}"
        )
        for what, same in alike.items()
    ]
    if len(lines) > _MOST_CHANGES:
        lines[_MOST_CHANGES:] = [f"and {len(lines) - _MOST_CHANGES} other differences"]
    if lines:
        hint = "Make a new one with `rollout plan --out FILE`, and review it."
        raise StalePlanError(
            f"the plan {saved.plan_id} no longer matches the cluster", details=lines, hint=hint
        )


def shown(session: Session, snapshot: ClusterSnapshot, plan: RolloutPlan, whole: str) -> str:
    """Return the plan as text, as far as it fits on the terminal above a question.

    `whole` is the command that shows everything.
    """
    height = terminal.height()
    members = (node for node in snapshot.nodes if is_control_plane(node, session.policy))
    return brief_text(
        plan,
        zones=zones(snapshot),
        width=session.width,
        height=max(_LEAST_LINES, height - _QUESTION_LINES) if height else None,
        where=session.place,
        next_step=next_without_waves(plan, session.settings),
        whole=session.settings.repeated(whole),
        control_plane=frozenset(node.name for node in members),
    )


def about_to_happen(run: Run) -> Sequence[str]:
    """Return the lines above the question whether to run the plan."""
    closed = why_closed(run.session.policy)
    waits = run.session.policy.gates.windows.wait
    never = (
        f"{closed} This does not wait for it (gates.wait-window)."
        if closed and not waits
        else closed
    )
    return [line for line in (consequence(run.plan), never) if line]


def next_without_waves(plan: RolloutPlan, settings: Given) -> str:
    """Return the command that tells why nodes could not be planned; empty where there is a wave, or no such node."""
    reasons = {node.reason for node in excluded_by_trouble(plan.excluded)} - {
        ExclusionReason.DEFERRED
    }
    is_current = all(left.update.is_current for left in plan.excluded if left.update)
    if plan.waves or not (reasons or not is_current):
        return ""
    command = "rollout doctor" if reasons - {ExclusionReason.VERSION_HELD} else "rollout status"
    return settings.repeated(command)


def zones(snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Each node's zone, for tables."""
    return {node.name: node.zone for node in snapshot.nodes}


def conceded(run: Run) -> Sequence[str]:
    """Return what rules that were not given just now give up, as sentences."""
    origin = (
        "continuing with the original"
        if run.inherited
        else "the saved plan has"
        if run.session.saved
        else ""
    )
    return (
        [f"{origin} {sentence}" for sentence in relaxed_rules(run.session.policy)] if origin else []
    )


def _useless(policy: Policy, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a sentence for rules that do nothing, on which whoever gives them counts."""
    for label in dict.fromkeys((policy.spread_by, *(pool.spread_by for pool in policy.pools))):
        if label and not any(label in node.labels for node in nodes):
            yield f"--spread-by has no effect: {close_labels(label, nodes)}"
    selector = policy.control_plane_selector
    gates = policy.gates
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        yield f"waves.control-plane-selector has no effect: {close_labels(selector, nodes)}"
    if gates.alerts.matchers and not gates.alerts.url:
        yield "alerts.matchers has no effect without alerts.prometheus-url: no alerts are read"


def warn_of_held(plan: RolloutPlan) -> None:
    """Say which nodes a plan leaves out for what was seen of their version, one sentence a version."""
    held = grouped(
        (left.message, left)
        for left in plan.excluded
        if left.reason is ExclusionReason.VERSION_HELD
    )
    warn(
        *(
            f"{counted(len(nodes), 'node')} left out: {printable(message)}"
            for message, nodes in held.items()
        )
    )


def cluster_copy(inputs: PlanInputs, kept: CachedPages, *, anonymous: bool) -> bytes:
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
    owners = {
        uid: (pace.ending_of((uid,), grace), pace.starting((uid,))) for uid, grace in graces.items()
    }
    return copy_document(kept, inputs.observations, CopiedPace(pace.reboot(0, 1), owners), key)
