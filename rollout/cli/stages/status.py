import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli import wiring
from rollout.cli.settings.schema import OutputFormat, OutputSettings, Settings
from rollout.cli.signals import delay_interrupts, interrupted_by_signals
from rollout.cli.stages.cluster import Connections, read_memory, with_retries
from rollout.cli.stages.evidence import read_proven_versions
from rollout.cli.stages.hosts import ask_hosts
from rollout.cli.stages.lock import has_ended_here, read_lock, watch_for_holder
from rollout.cli.stages.rollout_spec import RolloutSpec
from rollout.cli.terminal import Echo, say, screen_columns, show
from rollout.errors import ApiError
from rollout.execution.base.cached_value import CachedValue
from rollout.execution.base.deadline import GracefulStop, is_transient
from rollout.execution.lease import LockSnapshot, read_lease
from rollout.execution.record.record import read_record
from rollout.execution.record.unfinished import (
    LastRun,
    RunState,
    Unfinished,
    assess,
    last_run,
    run_state,
)
from rollout.gather.cluster import snapshot
from rollout.model.cluster import Node
from rollout.model.completion import AwaitedPod, awaited_pods
from rollout.model.json_text import json_line
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.policy import Policy
from rollout.model.progress import Phase
from rollout.model.text import capitalize, counted, shortened
from rollout.model.timestamps import elapsed
from rollout.planning.drain.completion import pods_to_complete
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.eligibility.judgement import EligibilityInputs
from rollout.planning.eligibility.status import NodeStatus, UnderWay, node_statuses
from rollout.planning.eligibility.versions import KnownVersions
from rollout.planning.eligibility.windows import Schedule
from rollout.ports import ClusterApi
from rollout.report import unfinished as wording
from rollout.report.columns import wrap
from rollout.report.sentences import usual_reboot_clause
from rollout.report.status import NO_FOLLOW_UP, FollowUp, Way, status_document, status_text
from rollout.wording import text
from rollout.wording.drain import awaited_text

if TYPE_CHECKING:
    from rollout.report.console import SharedConsole

_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 2.0
# A pause lasts this many readings, which are slow in large clusters.
_PAUSE_PER_READING = 10.0
_LONGEST_PAUSE_OF_PAGE = 30.0
_FOREVER = 10.0 * 365 * 24 * 3600
_WEB_ADDRESS = "127.0.0.1:0"
_HOW_TO_LEAVE = "Ctrl-C ends this view, not the rollout"
_NO_RESPONSE = "the API server does not respond: showing the last known state"


_AwaitedByNode = Mapping[str, Sequence[AwaitedPod]]


def _read_awaited_pods(api: ClusterApi, unfinished: Unfinished) -> _AwaitedByNode:
    plan = unfinished.record.plan
    if plan is None or not plan.policy.drain.completion.is_used:
        return {}
    draining = [item.node.name for item in unfinished.in_flight if item.phase is Phase.DRAINING]
    awaited = dict[str, Sequence[AwaitedPod]]()
    for name in draining:
        try:
            pods = pods_to_complete(snapshot.read_node_pods(api, name), plan.policy.drain)
        except ApiError as error:
            is_server_unreachable = is_transient(error)
            if is_server_unreachable:
                # Each further node would take as long to fail.
                break
            continue
        if pods:
            awaited[name] = awaited_pods(pods)
    return awaited


def _read_wait_texts(
    api: ClusterApi, unfinished: Unfinished, awaited: _AwaitedByNode
) -> Mapping[str, str]:
    """A node whose time of reboot cannot be read is left out."""
    now = api.server_time()
    texts = {name: awaited_text(pods, now) for name, pods in awaited.items()}
    plan = unfinished.record.plan
    usual_time = usual_reboot_clause(plan.estimate) if plan else ""
    rebooting = [item.node.name for item in unfinished.in_flight if item.phase is Phase.REBOOTING]
    for name in rebooting:
        try:
            began = snapshot.read_phase_time(api, name)
        except ApiError as error:
            is_server_unreachable = is_transient(error)
            if is_server_unreachable:
                break
            continue
        now = api.server_time()
        if began and now:
            down_time = elapsed((now - began).total_seconds())
            texts[name] = f"down for {down_time}{usual_time}"
    return texts


class UnfinishedSummary(NamedTuple):
    """Empty without an unfinished rollout."""

    follow_up: FollowUp = NO_FOLLOW_UP
    progress_by_node: Mapping[str, UnderWay] = {}
    # Continuing can wait.
    only_starts_nodes: bool = False


def read_unfinished_summary(
    api: ClusterApi, namespace: str, nodes: Sequence[Node]
) -> UnfinishedSummary:
    # The state until the lock has been read.
    state = RunState.UNFINISHED
    unfinished = None
    with suppress(ApiError):
        unfinished = assess(read_record(api, namespace), nodes)
        if unfinished is not None:
            state = run_state(unfinished, alive=read_lock(api, namespace).alive)
    if unfinished is None:
        return UnfinishedSummary()
    wait_texts = _read_wait_texts(api, unfinished, _read_awaited_pods(api, unfinished))
    return UnfinishedSummary(
        _follow_up(unfinished, state),
        wording.nodes_under_way(unfinished, wait_texts),
        only_starts_nodes=_needs_resume(unfinished, state) and not prevents_apply(unfinished),
    )


def _follow_up(unfinished: Unfinished, state: RunState) -> FollowUp:
    sentence = f"{capitalize(wording.unfinished_heading(unfinished, state))}."
    if state is RunState.RUNNING:
        return FollowUp(sentence, "rollout status --watch", is_first=True)
    if unfinished.is_aborted:
        after_abort = wording.ways_after_abort(unfinished)
        return FollowUp.of_ways(sentence, after_abort, is_first=prevents_apply(unfinished))
    failed_and_cordoned = [marked.node.name for marked in unfinished.failed]
    failed = [*failed_and_cordoned, *unfinished.failed_in_service]
    has_ended = not unfinished.blocks_others and not wording.is_of_fleetlock(unfinished)
    if failed and has_ended:
        return _follow_up_after_failures(unfinished, failed, sentence)
    needs_resume = _needs_resume(unfinished, state)
    command = "rollout resume" if needs_resume else "rollout status --run"
    return FollowUp(sentence, command, is_first=prevents_apply(unfinished))


def _needs_resume(unfinished: Unfinished, state: RunState) -> bool:
    record = unfinished.record
    if record.unattended:
        return False
    is_unreadable = bool(record.problem)
    if is_unreadable:
        return False
    if state is RunState.ENDED:
        return bool(unfinished.untouched_nodes)
    return state is RunState.INTERRUPTED


def _follow_up_after_failures(
    unfinished: Unfinished, failed: Sequence[str], sentence: str
) -> FollowUp:
    cannot_be_resumed = bool(unfinished.record.problem)
    if cannot_be_resumed:
        return FollowUp(sentence, "rollout abort")
    names = shortened(failed, 3)
    ways = [Way(f"After fixing {names}", "rollout resume --retry-failed", starts_nodes=True)]
    if unfinished.untouched_nodes:
        ways.append(Way(f"To continue without {names}", "rollout resume", starts_nodes=True))
    return FollowUp.of_ways(sentence, ways, is_first=prevents_apply(unfinished))


def prevents_apply(unfinished: Unfinished) -> bool:
    """Whether the rollout should be resumed or undone before apply."""
    return unfinished.blocks_others or unfinished.was_stopped


def show_nodes(
    connections: Connections, spec: RolloutSpec, nodes: Sequence[Node], *, only_pending: bool
) -> None:
    api = connections.api
    settings = spec.settings
    targets = ask_hosts(connections, spec, nodes)
    policy = spec.policy
    memory, proven = _read_memory_and_proof(api, settings)
    now = api.server_time()
    unfinished = read_unfinished_summary(api, spec.namespace, nodes)
    versions = KnownVersions.of(nodes, targets.observations)
    inputs = EligibilityInputs(
        now,
        memory,
        failure_limit=policy.failure_limit(len(targets.selected.names)),
        include_held=policy.include_held,
        proven=proven,
        own=targets.own_node,
        versions=versions,
        longest_silence=settings.detect.max_check_age,
    )
    statuses = node_statuses(
        targets.among(nodes),
        targets.hosts,
        targets.observations,
        policy=policy,
        inputs=inputs,
        under_way=unfinished.progress_by_node,
    )
    output = settings.output
    text = partial(
        status_text,
        statuses,
        width=output.width,
        room=screen_columns(),
        only_pending=only_pending,
        sources=policy.detect,
        memory=memory,
        now=now,
        unfinished_rollout=unfinished.follow_up,
        closed_windows=why_closed(policy),
        with_flags=settings.with_typed_settings,
    )
    printed = [status for status in statuses if status.is_pending or not only_pending]
    names = [status.node for status in printed]
    output.show(status_document(printed, statuses), text, nodes=names)
    if output.as_json:
        _warn_besides_json(statuses, printed, unfinished.follow_up)


def _read_memory_and_proof(
    api: ClusterApi, settings: Settings
) -> tuple[Memory, ProvenVersions | None]:
    memory = NO_MEMORY
    proven: ProvenVersions | None = None
    with suppress(ApiError):
        memory = read_memory(api, settings.lock.namespace, warns=True)
    with suppress(ApiError):
        proven = read_proven_versions(api, settings)
    return memory, proven


def why_closed(policy: Policy) -> str:
    """Return which windows are closed now; empty if all are open.

    Without an open window for all nodes, the pools' windows do not matter.
    """
    schedule = Schedule.of(policy.gates.windows)
    now = wiring.now()
    closed = schedule.why_closed(now)
    if closed:
        return f"No node can be rebooted now: {text(closed)}."
    sentences = list[str]()
    for pool in policy.pools:
        closed = schedule.in_pool(policy, pool.name).why_closed(now)
        if closed:
            sentences.append(
                f"No node of the pool {pool.name} can be rebooted now: {text(closed)}."
            )
    return " ".join(sentences)


def _warn_besides_json(
    statuses: Sequence[NodeStatus], printed: Sequence[NodeStatus], follow_up: FollowUp
) -> None:
    """Report on stderr what the JSON lacks: unclear nodes, and the rollout."""
    printed_names = {status.node for status in printed}
    unprinted_statuses = [status for status in statuses if status.node not in printed_names]
    unknown = [status for status in unprinted_statuses if not status.judged]
    if unknown:
        say(
            f"warning: cannot tell whether a reboot is pending on {counted(len(unknown), 'node')};"
            " see: rollout status"
        )
    if follow_up.sentence:
        say(f"{follow_up.sentence} See: {follow_up.command}")


class _RolloutSnapshot(Struct, frozen=True):
    unfinished: Unfinished | None
    lock: LockSnapshot
    last: LastRun | None
    # None if unknown.
    is_holder_alive: bool | None
    # By node.
    wait_texts: Mapping[str, str]
    awaited: _AwaitedByNode

    @property
    def is_over(self) -> bool:
        is_unfinished = self.unfinished is not None and self.unfinished.blocks_others
        return not is_unfinished and self.lock.alive is False

    def document(self) -> bytes:
        document = wording.run_document(
            self.unfinished, alive=bool(self.is_holder_alive), awaited=self.awaited
        )
        return json_line(document)

    def text(self) -> str:
        if self.unfinished is None:
            return wording.no_run_text(self.lock, self.last)
        return wording.run_text(
            self.unfinished, self.lock, self.wait_texts, alive=self.is_holder_alive
        )


def _read_rollout(api: ClusterApi, namespace: str) -> _RolloutSnapshot:
    nodes = snapshot.read_nodes(api)
    lease = read_lease(api, namespace)
    lock = LockSnapshot(lease, api.server_time(), has_ended=has_ended_here(lease))
    unfinished = assess(read_record(api, namespace), nodes)
    awaited: _AwaitedByNode = {}
    wait_texts: Mapping[str, str] = {}
    if unfinished is not None:
        awaited = _read_awaited_pods(api, unfinished)
        wait_texts = _read_wait_texts(api, unfinished, awaited)
    return _RolloutSnapshot(
        unfinished,
        lock,
        last=last_run(nodes),
        is_holder_alive=lock.alive,
        wait_texts=wait_texts,
        awaited=awaited,
    )


def show_run(api: ClusterApi, namespace: str, output: OutputSettings) -> None:
    rollout = with_retries(_read_rollout, api, namespace)
    if rollout.is_holder_alive is None and rollout.unfinished is not None:
        # One reading cannot tell whether the holder is alive.
        is_alive = watch_for_holder(api, namespace)
        rollout = replace(with_retries(_read_rollout, api, namespace), is_holder_alive=is_alive)
    output.show(rollout.document(), lambda: wrap(rollout.text(), output.width))


def watch_run(api: ClusterApi, namespace: str, output: OutputSettings) -> None:
    """Redraw on a terminal; elsewhere, print changes."""
    from rollout.report.console import SharedConsole

    # Report errors before drawing.
    with_retries(read_lease, api, namespace)
    stop = GracefulStop()
    snapshots = _read_repeatedly(api.within(_ANSWER_SECONDS), namespace, stop)
    console = SharedConsole(stderr=False)
    if output.as_json or not console.is_terminal or console.is_dumb_terminal:
        with interrupted_by_signals(stop):
            _print_changes(snapshots, output)
        return
    echo = Echo(sys.stdout)
    with interrupted_by_signals(stop, echo), echo:
        _draw(snapshots, console)


def _print_changes(snapshots: Iterator[_RolloutSnapshot | None], output: OutputSettings) -> None:
    printed = b""
    for rollout in snapshots:
        if rollout is None:
            continue
        document = rollout.document()
        if document != printed:
            if output.format is OutputFormat.YAML and printed:
                show("---")
            output.show(document, rollout.text)
            printed = document
        if rollout.is_over:
            return


def _draw(snapshots: Iterator[_RolloutSnapshot | None], console: "SharedConsole") -> None:
    """If there is no rollout, wait for one."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from rollout.report.console import colorize, share_console

    last_text = ""
    has_begun = False
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    share_console(live)
    with live:
        try:
            for rollout in snapshots:
                if rollout is None:
                    note = f"{_NO_RESPONSE} · {_HOW_TO_LEAVE}"
                else:
                    last_text = wrap(rollout.text(), console.width)
                    if has_begun and rollout.is_over:
                        return
                    has_begun = has_begun or not rollout.is_over
                    note = _HOW_TO_LEAVE
                    if not has_begun:
                        note = f"waiting for a rollout to start · {_HOW_TO_LEAVE}"
                with delay_interrupts():
                    live.update(Group(colorize(last_text), Text(note, style="dim")), refresh=True)
        finally:
            live.update(colorize(last_text), refresh=True)


def _read_repeatedly(
    api: ClusterApi, namespace: str, stop: GracefulStop
) -> Iterator[_RolloutSnapshot | None]:
    """Yield None while the API server does not respond.

    Raises `KeyboardInterrupt` after a signal.
    """
    while not stop.is_due:
        rollout = None
        began = time.monotonic()
        try:
            rollout = _read_rollout(api, namespace)
        except ApiError as error:
            if not is_transient(error):
                raise
        took = time.monotonic() - began
        yield rollout
        pause = _PAUSE_SECONDS
        if rollout is not None:
            pause = max(pause, _PAUSE_PER_READING * took)
        wiring.system_clock().wait(stop, pause)
    raise KeyboardInterrupt


def serve_run(settings: Settings, api: ClusterApi) -> None:
    from rollout.adapters.web import page_application, serve_http
    from rollout.cli.stages.web import RunPages

    namespace = settings.lock.namespace
    with_retries(read_lease, api, namespace)
    read_status = partial(_status_for_page, api.within(_ANSWER_SECONDS), namespace)
    clock = wiring.system_clock()
    share = 1 / _PAUSE_PER_READING
    status = CachedValue(
        read_status, _PAUSE_SECONDS, clock, share=share, longest=_LONGEST_PAUSE_OF_PAGE
    )
    application = page_application(RunPages(settings, status.get).page)
    stop = GracefulStop()
    with (
        interrupted_by_signals(stop),
        suppress(KeyboardInterrupt),
        serve_http(_WEB_ADDRESS, application) as url,
    ):
        say(f"{url}/ shows the rollout. Ctrl-C stops this page, not the rollout.")
        clock.wait(stop, _FOREVER)


def _status_for_page(api: ClusterApi, namespace: str) -> str:
    from rollout.report.runs.tables import clock

    # The page may be made later.
    read_at = f"read at {clock(wiring.now())}"
    try:
        return f"{_read_rollout(api, namespace).text().rstrip()}\n{read_at}"
    except ApiError as error:
        return f"the cluster cannot be read: {error.message}\n{read_at}"
