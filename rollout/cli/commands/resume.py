"""`rollout resume` and `rollout abort`: an interrupted rollout gone on with, or undone."""

import sys
from contextlib import suppress
from dataclasses import replace

import typer

from rollout.cli import consent, wiring
from rollout.cli.flags import LINES, YES, option, takes
from rollout.cli.program import as_started
from rollout.cli.settings.reading import PATIENCE, PLANNED, Given
from rollout.cli.settings.rules import refuse_another_process, selection_of
from rollout.cli.settings.schema import Allow
from rollout.cli.settings.standing import overruled, patience_notes, with_given_patience
from rollout.cli.signals import stopped_by_signals
from rollout.cli.stages import observers, refusals, screens
from rollout.cli.stages.cluster import find_unfinished, read_nodes
from rollout.cli.stages.connections import connect, with_patience
from rollout.cli.stages.hosts import find_hosts
from rollout.cli.stages.request import Interrupted, Request
from rollout.cli.stages.rest import prepare_rest
from rollout.cli.terminal import say, show, show_lines
from rollout.errors import ApiError, BlockedError, ExitCode, UsageError
from rollout.execution.base.deadline import StopRequest
from rollout.execution.record.unfinished import Unfinished
from rollout.execution.rollout.abort import abort as undo
from rollout.execution.rollout.continuation import is_nothing_left, rules_of
from rollout.execution.rollout.ports import Ports
from rollout.gather.cluster.documents import read_slots
from rollout.model.policy import Policy
from rollout.model.quantity import Duration
from rollout.model.text import counted
from rollout.report.columns import wrap
from rollout.report.plain import PlainLines
from rollout.report.sentences import capitalize
from rollout.report.unfinished import abort_document, abort_text, aborted_text, heading, ways_out

_FORCE_UNLOCK = option(
    "", "Take over the Lease of this run without waiting; only if no process works on it", "RUN"
)
_WAIT = "How long to wait for a node that may be rebooting"
# What the rules of the interrupted rollout leave open.
_OPEN = (Allow.BLOCKED, Allow.HELD, Allow.UNHEALTHY)
_OPEN_RULES = ("nodes.allow", "nodes.skip")


@takes(
    "cluster",
    "nodes.allow",
    "nodes.skip",
    *PATIENCE,
    "gates.interactive",
    "ssh",
    reads=PLANNED,
    formats=LINES,
)
def resume(
    settings: Given,
    yes: bool = YES,
    retry_failed: bool = option(False, "Also retry the nodes that failed"),
    force_unlock: str = _FORCE_UNLOCK,
) -> None:
    """Continue an interrupted rollout, from any machine.

    All state is in the cluster. Started nodes continue from where they are, with the settings of
    the interrupted rollout, and the others are planned again. You can change only the timeouts, and
    the change stays. Resumes nothing if the record is missing or unreadable (exit code 6).

    \b
    Examples:
      rollout resume
      rollout resume --yes --retry-failed
      rollout resume --retry-failed --reboot-timeout 30m
    """
    from rollout.cli.stages import execute

    as_json = settings.output.as_json
    connections = connect(settings)
    api = connections.api
    namespace = settings.lock.namespace
    watch = None if force_unlock else refusals.refuse_beside_living(api, namespace)
    unfinished = find_unfinished(api, namespace)
    if (
        unfinished is None
        or unfinished.is_aborted
        or is_nothing_left(unfinished, retry_failed=retry_failed)
    ):
        execute.tell_nothing() if as_json else show_lines(_nothing(unfinished))
        return
    if unfinished.record.problem:
        hint = (
            "rollout abort returns the started nodes, and removes a record that is not understood."
        )
        why = "without its record its rules are not known, so it is not resumed"
        raise BlockedError(f"{heading(unfinished)}: {why}", hint=hint)
    unfinished = _with_patience(unfinished, settings)
    origin = Interrupted(unfinished, retry_failed)
    request = Request(settings, selection_of(settings), rules_of(unfinished), origin)
    gates = wiring.gates(settings, request.policy.gates.alerts)
    if not yes:
        consent.refuse_without_terminal(as_json=as_json)
    with observers.metered(settings, api.server) as metrics, observers.measured_pass(metrics):
        run = prepare_rest(
            connections, request, unfinished, metrics=metrics, retry_failed=retry_failed
        )
        execution = execute.Execution(
            run,
            connections,
            execute.stop_request(settings),
            gates,
            watch=watch,
            force_unlock=force_unlock,
            metrics=metrics,
        )
        if not (as_json or unfinished.begun) and screens.next_without_waves(run.plan, settings):
            # All of it is on the screen, and the next command is its last line.
            execute.nothing_done(execution)
            raise typer.Exit(ExitCode.PARTIAL)
        if not yes:
            nodes = counted(run.plan.summary.nodes, "node")
            place = wiring.cluster_place(settings, api)
            notes = screens.start_notes(run.plan, request.policy) if run.plan.waves else ()
            consent.ask(f"Resume this rollout on {nodes} of {place}", notes)
        raise typer.Exit(execute.execute(execution))


def _with_patience(unfinished: Unfinished, settings: Given) -> Unfinished:
    """Return the rollout with the time-outs that are set now; refuse other flags about its rules."""
    plan = unfinished.record.plan
    allowed = settings.nodes.allow if "nodes.allow" in settings.typed else ()
    if closed := [word for word in allowed if word not in _OPEN]:
        hint = f"resume takes {', '.join(_OPEN)}."
        raise UsageError(
            f"--allow {closed[0]}: the interrupted rollout has its own rules", hint=hint
        )
    settings.refuse_typed(
        set(PLANNED).difference(_OPEN_RULES, PATIENCE),
        "cannot be changed now: the interrupted rollout has its own rules",
        "Drop it; only time-outs can be changed. For other rules: rollout abort, then rollout"
        " apply.",
    )
    refuse_another_process(settings, rules_of(unfinished))
    if plan is None:
        return unfinished
    rules = with_given_patience(plan.policy, settings)
    for sentence in patience_notes(plan.policy, rules):
        say(f"note: {sentence}")
    for sentence in overruled(settings, rules, plan.selection, open_settings=_OPEN_RULES):
        say(f"note: {sentence}")
    return replace(unfinished, record=replace(unfinished.record, plan=replace(plan, policy=rules)))


def _nothing(unfinished: Unfinished | None) -> str:
    if unfinished is None:
        return "Nothing to resume: this cluster has no record of a rollout."
    return f"Nothing to resume: {heading(unfinished)}. {capitalize(ways_out(unfinished))}."


@takes("cluster", "ssh")
def abort(
    settings: Given,
    yes: bool = YES,
    wait: Duration = option(Duration(120), _WAIT, "DURATION", parser=Duration.parse),
    force_unlock: str = _FORCE_UNLOCK,
) -> None:
    """Undo what an interrupted rollout started: its cordons, annotations, taints, labels and record.

    Touches nothing that someone else has set. Waits for a node that may be rebooting, and leaves it
    as it is if it does not come back in time.

    \b
    Examples:
      rollout abort
      rollout abort --yes --wait 5m
    """
    from rollout.cli.stages import execute

    output = settings.output
    connections = connect(settings)
    api = connections.api
    namespace = settings.lock.namespace
    watch = None if force_unlock else refusals.refuse_beside_living(api, namespace)
    unfinished = find_unfinished(api, namespace, deferred=True)
    has_slots = False
    with suppress(ApiError):
        has_slots = bool(with_patience(read_slots, api, namespace).held)
    if unfinished is None and not has_slots:
        output.show(None, lambda: "Nothing to undo: this cluster has no record of a rollout.")
        return
    if not yes:
        consent.refuse_without_terminal(as_json=output.as_json)
    if not output.as_json:
        lock = refusals.glance_at_lock(api, namespace)
        show(wrap(abort_text(unfinished, lock, wait=wait), output.width))
    if not yes:
        consent.ask(f"{_undoing(unfinished)} {wiring.cluster_place(settings, api)}")
    nodes = read_nodes(api)
    hosts = find_hosts(nodes, [node.name for node in nodes], settings.ssh)
    stop = StopRequest()
    progress = PlainLines(sys.stderr, rephrase=as_started)
    ports = Ports(api, connections.shell, wiring.system_clock(), (progress,))
    request = Request(settings, selection_of(settings), Policy())
    options = execute.run_options(
        request,
        len(nodes),
        process=execute.new_process_id(),
        watch=watch,
        force_unlock=force_unlock,
    )
    with stopped_by_signals(stop, meaning="no further node is returned"):
        aborted = undo(hosts, ports, options, wait=wait, stop=stop)
    if not aborted.stopped:
        observers.note_abort(aborted)
    again = settings.repeated("rollout abort")
    output.show(abort_document(aborted), lambda: aborted_text(aborted, again), is_prose=True)
    if aborted.stopped:
        raise typer.Exit(ExitCode.INTERRUPTED)
    is_left = aborted.left_cordoned or aborted.left_tainted
    raise typer.Exit(ExitCode.PARTIAL if is_left else ExitCode.OK)


def _undoing(unfinished: Unfinished | None) -> str:
    touched = len(unfinished.begun) + len(unfinished.failed) if unfinished else 0
    if touched:
        return f"Undo this rollout on {counted(touched, 'node')} of"
    return "Remove what is left of it on"
