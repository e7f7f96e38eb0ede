"""One node's reboot: who is asked, what counts as another boot, and what its Node has to say before
it is believed.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.adapters.clock import SystemClock
from rollout.errors import (
    ApiUnavailableError,
    DrainError,
    FencedError,
    RebootError,
    SshBrokenError,
    SshError,
    SshNoRouteError,
    SshRefusedError,
    SshStalledError,
    SshTimeoutError,
    StepError,
)
from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.execution.base.reporting import OutageNotice
from rollout.execution.lock import LockOptions
from rollout.execution.node.claim import continue_from_marks
from rollout.execution.node.context import (
    NodeContext,
    Progress,
    with_pre_reboot_check,
)
from rollout.execution.node.ending import end_without_success
from rollout.execution.node.failures import (
    NodeFailure,
    NodeRemovedError,
    StoppedError,
    is_update_cleared,
)
from rollout.execution.node.marking import MarksGoneError, mark_phase, return_node
from rollout.execution.node.proof import (
    MissingProof,
    await_ready,
    missing_in_sign,
    prove_reboot_worked,
    prove_version,
)
from rollout.execution.node.reboot import ask_for_reboot, await_boot
from rollout.execution.node.rejoin import mark_new_node, retry_if_node_lost
from rollout.execution.node.rollback import prove_rollback, undoing_failed_rollback
from rollout.execution.node.ssh_host import RememberingShell, RolloutHosts, SshHost
from rollout.execution.node.steps import process_node, return_proven_node, ssh_steps
from rollout.execution.node.watched import watched_node
from rollout.execution.rollout.abort import abort
from rollout.execution.rollout.ledger import Aborted
from rollout.gather.hosts.probe import BootFacts
from rollout.gather.hosts.probe_command import MARKER
from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES
from rollout.model import marks
from rollout.model.detection import Sign, Source, SourceAnswer
from rollout.model.finding import NodeMarkedByOther
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.host import Host
from rollout.model.plan import ExclusionReason, PlannedNode
from rollout.model.policy import DrainPolicy, Policy
from rollout.model.progress import NodeResult, Outcome, Phase
from rollout.model.quantity import Duration
from rollout.ports import Clock, ClusterApi, CommandResult
from tests.execution.conftest import Recorder
from tests.execution.drains import NODE, Json, change, once, put, stored, task_of
from tests.execution.simulated import OpenEngine, PassingClock
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory
OLD, NEW = (f"{digit * 8}-1111-1111-1111-111111111111" for digit in "ab")
MACHINE = "c" * 32
OTHER = "d" * 32
TARGETS = {Source.UPDATE_ENGINE: "2.0.0"}
PLANNED = PlannedNode(NODE, OLD, f"uid-{NODE}", "1.0.0", "2.0.0", 0, 0, machine_id=MACHINE)


def said(boot_id: str, machine_id: str = MACHINE, version: str = "2.0.0") -> CommandResult:
    parts = {"boot": boot_id, "machine": machine_id, "release": f"VERSION={version}"}
    return CommandResult(
        0, "".join(f"\n{MARKER} {name}\n{value}\n" for name, value in parts.items()), ""
    )


@dataclass
class Answers:
    """A host that gives these answers, the last one for ever; None for one that cannot be reached."""

    answers: Sequence[CommandResult | None]
    meanwhile: Callable[[], object] = lambda: None
    unreachable: type[SshError] = SshNoRouteError
    rebooted: int = 0
    asked: int = 0
    longest: float = 0.0

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        self.longest = max(self.longest, timeout)
        self.meanwhile()
        if answer is None:
            raise self.unreachable("it cannot be reached")
        return answer

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        answer = self.run(host, question, timeout=timeout)
        if not accepts(answer):
            return None
        self.rebooted += 1
        return CommandResult(0, "", "")

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        yield


Asking = Callable[[Answers], NodeContext]


@pytest.fixture
def asking(server: StandaloneApi, api: ClusterApi, recorder: Recorder) -> Asking:
    """A node that is drained, with a host that answers so."""
    annotations = {
        marks.RUN: "run-1",
        marks.PHASE: "drained",
        marks.BOOT_ID_BEFORE: OLD,
        marks.MACHINE_ID: MACHINE,
    }
    metadata = {"name": NODE, "uid": f"uid-{NODE}", "annotations": annotations}
    put(
        server,
        NODES,
        {"metadata": metadata, "spec": {"unschedulable": True}, "status": status(OLD, ready=True)},
    )

    def made(answers: Answers) -> NodeContext:
        draining = task_of(NODE, api, recorder, DrainPolicy())
        cluster = PatientApi(api, PassingClock(), OutageNotice(draining.report))
        return NodeContext(
            planned=PLANNED,
            run_id="run-1",
            cluster=cluster,
            check_may_act=draining.check_may_act,
            report=draining.report,
            policy=Policy(reboot_timeout=Duration(60), ready_timeout=Duration(60)),
            engine=OpenEngine(),
            host=SshHost(Host(NODE, "192.0.2.1"), PLANNED, RememberingShell(cast("Any", answers))),
            started_by_earlier_process=True,
        )

    return made


def boot_of(context: NodeContext, *, in_doubt: bool = False) -> BootFacts:
    return await_boot(context, cast("SshHost", context.host), TARGETS, in_doubt=in_doubt)


def ask(context: NodeContext) -> None:
    ask_for_reboot(context, cast("SshHost", context.host), TARGETS)


def status(boot_id: str, *, ready: bool, machine_id: str = MACHINE) -> Json:
    info = {"bootID": boot_id, "machineID": machine_id}
    return {"conditions": [{"type": "Ready", "status": str(ready)}], "nodeInfo": info}


def mark_as(server: StandaloneApi, phase: str) -> None:
    annotations = stored(server, NODES, NODE)["metadata"]["annotations"]
    change(server, NODES, NODE, metadata={"annotations": {**annotations, marks.PHASE: phase}})


def ended(act: Callable[[], object]) -> Outcome:
    with pytest.raises(NodeFailure) as failed:
        act()
    return failed.value.outcome


def test_only_another_boot_of_the_same_machine_counts(asking: Asking) -> None:
    host = Answers([said(OLD), None, said("no id"), said(OLD), said(NEW)])
    assert boot_of(asking(host)) == BootFacts(NEW, MACHINE, "2.0.0")
    assert host.asked == 5
    assert ended(lambda: boot_of(asking(Answers([None, said(NEW, OTHER)])))) is Outcome.NOT_BACK
    assert ended(lambda: boot_of(asking(Answers([said(OLD)])))) is Outcome.NOT_REBOOTED
    assert ended(lambda: boot_of(asking(Answers([said(OLD), None])))) is Outcome.NOT_BACK


def test_only_the_machine_in_the_boot_from_before_is_asked_and_once(
    asking: Asking, server: StandaloneApi
) -> None:
    ask(asking(host := Answers([None, said(OLD), said(OLD)])))
    assert host.rebooted == 1
    ask(asking(host := Answers([said(NEW)])))
    assert host.rebooted == 0
    host = Answers([said(OLD, OTHER)])
    assert ended(lambda: ask(asking(host))) is Outcome.REBOOT_REFUSED
    assert host.rebooted == 0
    # with the connection open, the Node is looked at once more
    host = Answers([said(OLD)], lambda: change(server, NODES, NODE, spec={"unschedulable": False}))
    with pytest.raises(DrainError, match="was uncordoned outside this rollout"):
        ask(asking(host))
    assert host.rebooted == 0


@dataclass
class FailingRequests(Answers):
    """A host whose first requests to reboot fail so: before the command is sent, or with it."""

    failures: Sequence[SshError] = ()
    is_sent: bool = False

    def run_if(
        self,
        host: Host,
        question: str,
        accepts: Callable[[CommandResult], bool],
        command: str,
        *,
        timeout: float,
    ) -> CommandResult | None:
        if not self.failures:
            return super().run_if(host, question, accepts, command, timeout=timeout)
        error, *self.failures = self.failures
        if self.is_sent:
            assert accepts(self.run(host, question, timeout=timeout))
        raise error


@pytest.mark.parametrize(("is_sent", "requests"), [(False, 1), (True, 0)])
def test_only_a_command_that_was_sent_may_have_been_received(
    asking: Asking, requests: int, *, is_sent: bool
) -> None:
    """No packet gets through while connecting, or its staged update is not told in time."""
    late = SshTimeoutError("no response within 15 s")
    host = FailingRequests([said(OLD)], failures=[late, late], is_sent=is_sent)
    ask(asking(host))
    assert host.rebooted == requests


def drained_run(context: NodeContext, server: StandaloneApi) -> NodeResult:
    """The rest of a run whose node is drained: its host is asked once when it is taken up, and once
    what is staged.
    """
    planned = replace(PLANNED, node_uid=stored(server, NODES, NODE)["metadata"]["uid"])
    steps = {**ssh_steps(cast("SshHost", context.host)), Phase.CORDONED: start_at_drained}
    return process_node(replace(context, planned=planned), steps)


def start_at_drained(_context: NodeContext, progress: Progress) -> Progress:
    return replace(progress, phase=Phase.DRAINED)


@pytest.mark.parametrize("answer", [None, said("no id"), said(OLD, OTHER)])
def test_a_node_whose_host_was_never_asked_to_reboot_is_returned(
    answer: CommandResult | None, asking: Asking, server: StandaloneApi
) -> None:
    """As where the jump host is away. The staged version was never booted, so it is not at fault."""
    context = asking(host := Answers([None, None, None, answer]))
    result = drained_run(context, server)
    assert (result.outcome, result.phase) == (Outcome.REBOOT_REFUSED, Phase.DRAINED)
    assert "not asked to reboot" in result.message
    assert host.rebooted == 0
    node = stored(server, NODES, NODE)
    assert (
        json.loads(node["metadata"]["annotations"][marks.LAST_RESULT])
        .keys()
        .isdisjoint({"failed_version", "failed_as"})
    )


@pytest.mark.parametrize(
    ("answer", "outcome", "requests"),
    [
        (None, Outcome.NOT_BACK, 0),
        # It has not received the first request, so it is asked again.
        (said(OLD), Outcome.NOT_REBOOTED, 1),
    ],
)
def test_a_host_whose_connection_breaks_with_the_command_may_be_going_down(
    answer: CommandResult | None,
    outcome: Outcome,
    requests: int,
    asking: Asking,
    server: StandaloneApi,
) -> None:
    broken = SshBrokenError("the connection broke")
    answers = [None, None, said(OLD), answer]
    host = FailingRequests(answers, failures=[broken], is_sent=True)
    result = drained_run(asking(host), server)
    assert (result.outcome, result.phase) == (outcome, Phase.REBOOTING)
    assert result.left_cordoned == (outcome is Outcome.NOT_BACK)
    assert host.rebooted == requests


def test_an_outage_of_the_api_server_until_the_deadline_is_no_fault_of_the_host(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(_task: NodeContext, deadline: Deadline) -> None:
        deadline.pause(deadline.remaining)
        raise ApiUnavailableError("connection refused")

    monkeypatch.setattr("rollout.execution.node.reboot.check_still_drained", unavailable)
    host = Answers([said(OLD)])
    with pytest.raises(
        NodeFailure, match=r"not asked to reboot within.*connection refused"
    ) as failed:
        ask(asking(host))
    assert failed.value.outcome is Outcome.REBOOT_REFUSED
    assert host.rebooted == 0


@pytest.mark.parametrize(
    ("answer", "phase", "goes_on"),
    [
        (said(OLD), Phase.CORDONED, Phase.CORDONED),
        (said(OLD), Phase.DRAINED, Phase.CORDONED),
        (said(NEW), Phase.DRAINED, Phase.REBOOTING),
        (said(NEW), Phase.CORDONED, Phase.REBOOTING),
        (None, Phase.DRAINED, Phase.CORDONED),
        (said(OLD), Phase.REBOOTING, Phase.REBOOTING),
        (said(NEW), Phase.BOOTED, Phase.REBOOTING),
        (None, Phase.FAILED, Phase.REBOOTING),
    ],
)
def test_a_node_is_taken_up_where_its_boot_says(
    answer: CommandResult | None,
    phase: Phase,
    goes_on: Phase,
    asking: Asking,
    server: StandaloneApi,
) -> None:
    context = asking(Answers([answer]))
    mark_as(server, phase.value)
    taken = continue_from_marks(context)
    assert taken.phase == goes_on
    assert taken.in_doubt == (phase is Phase.REBOOTING)


def test_marks_that_are_not_understood_by_its_turn_are_left_as_they_are(
    asking: Asking, server: StandaloneApi
) -> None:
    context = asking(Answers([said(OLD)]))
    mark_as(server, "levitating")
    assert ended(lambda: continue_from_marks(context)) is Outcome.STRANDED


BOOT = BootFacts(NEW, MACHINE, "2.0.0")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (status(OLD, ready=True), "waiting for its kubelet to report this boot"),
        (status(NEW, ready=False), "waiting for Ready"),
    ],
)
def test_its_node_has_to_report_that_boot_and_be_ready(
    told: Json, says: str, asking: Asking, server: StandaloneApi
) -> None:
    context = asking(Answers([None]))
    change(server, NODES, NODE, status=told)
    with pytest.raises(NodeFailure, match=says) as failed:
        await_ready(context, BOOT, Duration(30))
    assert failed.value.outcome is Outcome.NOT_READY
    change(server, NODES, NODE, status=status(NEW, ready=True))
    await_ready(context, BOOT, Duration(30))
    # whatever machine ID a kubelet in a container reports
    change(server, NODES, NODE, status=status(NEW, ready=True, machine_id=OTHER))
    await_ready(context, BOOT, Duration(30))


@pytest.mark.parametrize("told", [status(OLD, ready=True), status(NEW, ready=False)])
def test_a_node_that_is_in_another_boot_or_not_ready_after_its_checks_stays_cordoned(
    told: Json, asking: Asking, server: StandaloneApi
) -> None:
    context = asking(Answers([None]))
    change(server, NODES, NODE, status=told)
    progress = Progress(Phase.READY, staged_version="2.0.0", boot=BOOT, marked=True)
    assert ended(lambda: return_proven_node(context, progress)) is Outcome.NOT_READY
    assert stored(server, NODES, NODE)["spec"]["unschedulable"]
    change(server, NODES, NODE, status=status(NEW, ready=True))
    assert return_proven_node(context, progress).phase is Phase.DONE


# Nodes that somebody deletes meanwhile.


PROGRESS = Progress(Phase.REBOOTING, staged_version="2.0.0", boot=BOOT, marked=True)
Watching = Callable[[Answers], NodeContext]


@pytest.fixture
def watching(asking: Asking, server: StandaloneApi) -> Iterator[Watching]:
    """The same node, of whose Node the watch has told."""
    with ExitStack() as stack:

        def made(answers: Answers) -> NodeContext:
            planned = replace(PLANNED, node_uid=stored(server, NODES, NODE)["metadata"]["uid"])
            context = replace(asking(answers), planned=planned)
            watched = stack.enter_context(watched_node(context))
            wait_until(lambda: bool(watched.view.generation) and not watched.is_absent)
            return replace(context, watched=watched)

        yield made


def delete(server: StandaloneApi, context: NodeContext) -> None:
    server.call(lambda: server.store.remove(NODES, NODE))
    assert context.watched is not None
    wait_until(lambda: context.watched is not None and context.watched.is_absent)


def register(server: StandaloneApi, *, boot_id: str = NEW, machine_id: str = MACHINE) -> None:
    """As its kubelet does when it starts: nothing of ours stands on it."""
    put(
        server,
        NODES,
        {"metadata": {"name": NODE}, "status": status(boot_id, ready=True, machine_id=machine_id)},
    )


@pytest.mark.parametrize("phase", [Phase.CORDONED, Phase.DRAINING, Phase.DRAINED])
def test_before_its_reboot_a_node_that_is_deleted_is_skipped_at_once(
    phase: Phase, watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([said(OLD)]))
    check = with_pre_reboot_check(context, phase).check_may_act
    check()
    delete(server, context)
    with pytest.raises(NodeFailure, match=f"its Node was deleted while it was {phase}") as skipped:
        check()
    assert skipped.value.outcome == Outcome.SKIPPED
    assert skipped.value.reason == ExclusionReason.DELETING


def test_a_node_that_an_autoscaler_takes_in_hand_during_its_drain_is_left_to_it(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([said(OLD)]))
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    change(server, NODES, NODE, spec={"taints": [taint], "unschedulable": True})
    wait_until(lambda: context.watched is not None and bool(context.watched.why_removed))
    with pytest.raises(
        NodeFailure, match="the cluster autoscaler is about to remove it"
    ) as skipped:
        with_pre_reboot_check(context, Phase.DRAINING).check_may_act()
    assert skipped.value.reason is ExclusionReason.DELETING


def test_a_host_that_stays_away_without_its_node_was_taken_away(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([None]))
    delete(server, context)
    began = context.now
    with pytest.raises(NodeFailure, match="its host did not come back") as removed:
        boot_of(context)
    assert removed.value.outcome == Outcome.SKIPPED
    assert removed.value.reason == ExclusionReason.DELETING
    assert context.now - began < context.policy.reboot_timeout / 2


def test_a_host_that_is_down_is_tried_often_and_one_that_is_up_is_not(asking: Asking) -> None:
    down, up = Answers([None]), Answers([said(OLD)])
    stalled = Answers([None], unreachable=SshStalledError)
    assert ended(lambda: boot_of(asking(stalled))) is Outcome.NOT_BACK
    assert ended(lambda: boot_of(asking(down))) is Outcome.NOT_BACK
    assert ended(lambda: boot_of(asking(up))) is Outcome.NOT_REBOOTED
    # --reboot-timeout is 60 s here.
    assert down.asked > 60 / 0.25
    assert max(up.asked, stalled.asked) < 30


@dataclass
class LimitedHost(Answers):
    """A host whose firewall refuses the sixth attempt within 30 s, and counts refused ones."""

    answers: Sequence[CommandResult | None] = ()
    unreachable: type[SshError] = SshRefusedError
    now: Callable[[], float] = lambda: 0.0
    up_after: float = 0.0
    attempts: list[float] = field(default_factory=list)

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        now = self.now()
        self.attempts.append(now)
        counted = [attempt for attempt in self.attempts if now - attempt < 30]
        if len(counted) > 5 or now < self.up_after:
            raise SshRefusedError("the connection was refused")
        return said(NEW)


def asking_limited_host(asking: Asking, up_after: float) -> tuple[NodeContext, float]:
    """A host that is up so many seconds from now, and the time now."""
    host = LimitedHost(up_after=up_after)
    context = asking(host)
    began = context.now
    host.up_after += began
    host.now = lambda: context.now
    return context, began


@pytest.mark.parametrize(("up_after", "late"), [(0.6, 0.3), (1.5, 1), (8, 10), (40, 10)])
def test_a_host_that_limits_connections_is_found(
    asking: Asking, up_after: float, late: float
) -> None:
    context, began = asking_limited_host(asking, up_after)
    assert boot_of(context).boot_id == NEW
    assert context.now - began <= up_after + late


@dataclass
class LateHost(Answers):
    """A host that responds in its new boot from a second on; until then, each attempt takes 7 s."""

    clock: Clock = field(default_factory=PassingClock)
    up_at: float = 0.0

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        if self.clock.monotonic() < self.up_at:
            self.clock.sleep(7)
            raise SshNoRouteError("it cannot be reached")
        return said(NEW)


def test_a_host_that_responds_to_the_last_question_is_back(asking: Asking) -> None:
    context = asking(host := LateHost(()))
    host.clock = context.cluster.clock
    host.up_at = context.now + context.policy.reboot_timeout
    assert boot_of(context).boot_id == NEW


class RestlessKubelet:
    """A Node that reports another boot at any time, so that no pause is long."""

    boot_id = OLD
    is_absent = False
    why_removed = ""

    def await_other_boot(self, boot_id: str, deadline: Deadline) -> None:
        deadline.pause(0.2)


@pytest.mark.parametrize(
    ("act", "outcome"), [(boot_of, Outcome.NOT_BACK), (ask, Outcome.REBOOT_REFUSED)]
)
@pytest.mark.parametrize("watched", [None, RestlessKubelet()])
def test_a_host_that_refuses_connections_is_tried_five_times_in_thirty_seconds(
    asking: Asking, act: Callable[[NodeContext], object], outcome: Outcome, watched: Any
) -> None:
    host = LimitedHost(up_after=10_000)
    context = replace(asking(host), watched=watched)
    context = replace(context, policy=replace(context.policy, reboot_timeout=Duration(300)))
    host.now = lambda: context.now
    assert ended(lambda: act(context)) is outcome
    # The last two are made at the deadline.
    attempts = host.attempts[:-2]
    assert len(attempts) > 300 / 15
    assert all(sixth - first > 30 for first, sixth in zip(attempts, attempts[5:], strict=False))


@dataclass
class PunctualKubelet:
    """A Node that reports the new boot at this time."""

    now: Callable[[], float]
    reports_at: float
    is_absent: bool = False
    why_removed: str = ""

    @property
    def boot_id(self) -> str:
        return NEW if self.now() >= self.reports_at else OLD

    def await_other_boot(self, boot_id: str, deadline: Deadline) -> None:
        while not deadline.expired and self.boot_id == boot_id:
            deadline.pause(0.1)


@pytest.mark.parametrize("up_after", [8, 15, 22, 27, 29, 45, 55])
def test_a_host_that_refused_connections_is_tried_when_its_kubelet_reports(
    asking: Asking, up_after: float
) -> None:
    context, began = asking_limited_host(asking, up_after)
    kubelet = PunctualKubelet(lambda: context.now, reports_at=began + up_after + 1)
    context = replace(context, watched=cast("Any", kubelet))
    assert boot_of(context).boot_id == NEW
    assert context.now - began <= up_after + 1.5


def test_a_boot_that_the_kubelet_reports_ends_the_pause(
    watching: Watching, server: StandaloneApi
) -> None:
    host = Answers([said(OLD)])
    context = watching(host)
    context = replace(context, cluster=replace(context.cluster, clock=SystemClock()))
    watched = context.watched
    assert watched is not None
    wait_until(lambda: watched.boot_id == OLD)
    began = time.monotonic()
    report = threading.Timer(
        0.2, change, (server, NODES, NODE), {"status": status(NEW, ready=False)}
    )
    report.start()
    watched.await_other_boot(OLD, context.cluster.deadline(20))
    assert time.monotonic() - began < 5
    report.join()
    # That boot has been tried: only the next one counts.
    watched.await_other_boot(NEW, context.cluster.deadline(0.1))
    assert time.monotonic() - began > 0.3


def test_a_host_that_comes_back_without_its_node_is_proven_by_the_node_that_it_registers(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([None, said(NEW)]))
    delete(server, context)
    assert boot_of(context) == BOOT
    register(server)
    retry_if_node_lost(context, PROGRESS, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED))
    node = stored(server, NODES, NODE)
    assert node["spec"]["unschedulable"]
    expected = {
        marks.RUN: "run-1",
        marks.PHASE: "booted",
        marks.BOOT_ID_BEFORE: OLD,
        marks.MACHINE_ID: MACHINE,
        marks.STAGED_VERSION: "2.0.0",
        marks.CORDONED_BY_US: "true",
    }
    assert node["metadata"]["annotations"] == expected


def test_a_node_that_is_registered_again_during_its_checks_is_cordoned_and_checked_anew(
    watching: Watching, server: StandaloneApi
) -> None:
    check = "ceph.example/healthy"
    context = watching(Answers([None]))
    change(server, NODES, NODE, status=status(NEW, ready=True))
    # Time passes at once here, and the kubelet needs a moment.
    forever = Duration(100_000_000)
    hooks = HookPolicy(after=(check,), timeout=forever)
    policy = replace(context.policy, ready_timeout=forever, gates=GatePolicy(hooks=hooks))
    context = replace(context, policy=policy)
    label = f"{hooks.prefix}after-reboot"

    def is_checked() -> bool:
        return label in stored(server, NODES, NODE)["metadata"].get("labels", {})

    def register_again() -> None:
        delete(server, context)
        register(server)
        wait_until(is_checked)
        assert stored(server, NODES, NODE)["spec"]["unschedulable"]
        annotations = stored(server, NODES, NODE)["metadata"]["annotations"]
        change(server, NODES, NODE, metadata={"annotations": {**annotations, check: "true"}})

    kubelet = once(is_checked, register_again)
    progress = replace(PROGRESS, phase=Phase.READY)
    finish = ssh_steps(cast("SshHost", context.host))[Phase.READY]
    assert finish(context, progress).phase is Phase.DONE
    kubelet.join()
    assert not stored(server, NODES, NODE)["spec"].get("unschedulable")


def test_a_node_that_is_marked_again_twice_keeps_a_cordon_of_ours(
    watching: Watching, server: StandaloneApi
) -> None:
    """As where the first answer is lost."""
    context = watching(Answers([None]))
    delete(server, context)
    register(server)
    for _ in range(2):
        mark_new_node(context, Phase.BOOTED, {})
    assert stored(server, NODES, NODE)["metadata"]["annotations"][marks.CORDONED_BY_US] == "true"


def test_a_node_that_is_gone_when_it_is_taken_up_is_skipped(
    asking: Asking, server: StandaloneApi
) -> None:
    """Its marks would tell whether its reboot was requested."""
    context = asking(Answers([None]))
    server.call(lambda: server.store.remove(NODES, NODE))
    result = process_node(context, ssh_steps(cast("SshHost", context.host)))
    assert result.outcome is Outcome.SKIPPED
    assert result.reason is ExclusionReason.DELETING
    assert result.message == "its Node was deleted before the rollout was resumed"
    assert not result.left_cordoned


def test_a_host_whose_node_gets_another_name_during_its_reboot_was_removed_as_this_node(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([None]))
    delete(server, context)
    put(server, NODES, {"metadata": {"name": "renamed"}, "status": status(NEW, ready=True)})
    with pytest.raises(NodeFailure, match="not registered again") as removed:
        retry_if_node_lost(
            context, PROGRESS, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED)
        )
    assert removed.value.reason is ExclusionReason.DELETING
    renamed = stored(server, NODES, "renamed")
    assert "annotations" not in renamed["metadata"]
    assert not renamed.get("spec", {}).get("unschedulable")


def test_a_node_that_is_registered_by_another_machine_proves_nothing(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([None]))
    delete(server, context)
    register(server, boot_id="of-another", machine_id=OTHER)
    with pytest.raises(NodeFailure, match="not registered again") as removed:
        retry_if_node_lost(
            context, PROGRESS, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED)
        )
    assert removed.value.reason is ExclusionReason.DELETING
    assert "annotations" not in stored(server, NODES, NODE)["metadata"]


def test_marks_that_somebody_removed_are_not_restored(
    watching: Watching, server: StandaloneApi
) -> None:
    context = watching(Answers([None]))
    change(server, NODES, NODE, metadata={"annotations": {}})
    with pytest.raises(MarksGoneError):
        retry_if_node_lost(
            context, PROGRESS, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED)
        )


def test_a_node_that_is_deleted_after_it_reported_its_boot_does_not_come_back(
    asking: Asking, server: StandaloneApi, recorder: Recorder
) -> None:
    context = asking(Answers([None]))
    change(server, NODES, NODE, status=status(NEW, ready=False))
    # Its new boot was seen, so the Node is not one that has yet to join.
    remover = once(
        lambda: "waiting for Ready" in str(recorder.events),
        lambda: server.call(lambda: server.store.remove(NODES, NODE)),
    )
    began = context.now
    with pytest.raises(NodeFailure, match="deleted after its reboot") as removed:
        await_ready(
            replace(context, cluster=PatientApi(context.cluster.api, SystemClock())),
            BOOT,
            Duration(600),
        )
    remover.join()
    assert removed.value.reason is ExclusionReason.DELETING
    assert context.now == began


@pytest.mark.parametrize(
    ("staged", "version", "proven"),
    [
        ("2.0.0", "2.0.0", True),
        ("2.0.0", "1.0.0", False),
        ("2.0.0", "3.0.0", False),
        ("", "1.0.0", False),
    ],
)
def test_the_version_has_to_be_the_staged_one(staged: str, version: str, *, proven: bool) -> None:
    boot = BootFacts(NEW, MACHINE, version)
    if proven:
        prove_version(PLANNED, staged, boot)
    else:
        assert ended(lambda: prove_version(PLANNED, staged, boot)) is Outcome.ROLLED_BACK


# What a host's source says after the reboot, as a proof of it.


def ostree(current: str, answer: SourceAnswer = SourceAnswer.NOT_NEEDED) -> Sign:
    return Sign(Source.RPM_OSTREE, answer, "rpm-ostree did not respond", current=current)


@pytest.mark.parametrize(
    "sign",
    [
        ostree("b" * 64),
        # The next update may be staged already.
        ostree("b" * 64, SourceAnswer.NEEDED),
        Sign(Source.REBOOT_REQUIRED, SourceAnswer.NOT_NEEDED),
        Sign(Source.COMMAND, SourceAnswer.NOT_NEEDED),
        # What was before a host's previous version does not matter.
        Sign(Source.ROLLBACK, SourceAnswer.NONE, current="b" * 64),
    ],
)
def test_a_sign_that_proves_the_reboot(sign: Sign) -> None:
    assert missing_in_sign(sign, "b" * 64) is None


@pytest.mark.parametrize(
    ("sign", "why", "is_final"),
    [
        (ostree("a" * 64), "deployment aaaaaaaaaaaa is booted, not bbbbbbbbbbbb", True),
        (ostree("", SourceAnswer.NONE), "rpm-ostree did not respond", False),
        # /run is new with each boot: what is there now was put there by this one
        (
            Sign(Source.REBOOT_REQUIRED, SourceAnswer.NEEDED, "the file"),
            "a reboot is still needed (the file)",
            True,
        ),
        (Sign(Source.REBOOT_REQUIRED, SourceAnswer.NONE, "not known"), "not known", False),
        (
            Sign(Source.COMMAND, SourceAnswer.NEEDED, "exited with 0"),
            "a reboot is still needed (exited with 0)",
            False,
        ),
        (Sign(Source.COMMAND, SourceAnswer.NONE, "did not run"), "did not run", False),
        (
            Sign(Source.ROLLBACK, SourceAnswer.NEEDED, current="a" * 64),
            "aaaaaaaaaaaa is booted, not bbbbbbbbbbbb",
            True,
        ),
        (Sign(Source.ROLLBACK, SourceAnswer.NONE, "not known"), "not known", False),
    ],
)
def test_a_sign_that_does_not_prove_the_reboot(sign: Sign, why: str, *, is_final: bool) -> None:
    missing = missing_in_sign(sign, "b" * 64)
    assert missing == MissingProof(sign.source, why, is_final=is_final)


def test_an_image_that_names_the_same_version_has_gone_back() -> None:
    """The digest proves it: here the os-release of both images says 9."""
    planned = PlannedNode("w-1", "b", "u", "9", "stream9.1", 0, 0)
    boot = BootFacts("c", "u", "9")
    prove_rollback(planned, "stream9.1", boot, target=f"sha256:{'a' * 64}")
    with pytest.raises(NodeFailure, match="is still running 9 instead of"):
        prove_rollback(planned, "8", boot, target="/dev/vda4")


def test_a_version_that_runs_is_not_held_for_what_else_was_not_proven() -> None:
    planned = PlannedNode("w-1", "b", "u", "1.0", "2.0", 0, 0)
    assert not is_update_cleared(planned, Outcome.ROLLED_BACK, "1.0", is_login_refused=False)
    assert not is_update_cleared(planned, Outcome.NOT_READY, "2.0", is_login_refused=False)
    assert is_update_cleared(planned, Outcome.ROLLED_BACK, "2.0", is_login_refused=False)
    assert is_update_cleared(planned, Outcome.NOT_BACK, "", is_login_refused=True)


def test_a_rollback_that_fails_does_not_accuse_the_previous_version(
    asking: Asking, server: StandaloneApi
) -> None:
    back = replace(PLANNED, detected_by=(Source.ROLLBACK,))
    assert is_update_cleared(back, Outcome.ROLLED_BACK, "1.0.0", is_login_refused=False)
    assert is_update_cleared(back, Outcome.NOT_READY, "1.0.0", is_login_refused=False)
    assert not is_update_cleared(back, Outcome.NOT_READY, "2.0.0", is_login_refused=False)
    context = asking(Answers([said(OLD)]))
    back_context = replace(context, policy=replace(context.policy, rollback="1.0.0"))
    annotations = stored(server, NODES, NODE)["metadata"]["annotations"]
    ready = {**annotations, marks.PHASE: "ready", marks.STAGED_VERSION: "2.0.0"}
    change(server, NODES, NODE, metadata={"annotations": ready})
    return_node(back_context, Outcome.ROLLED_BACK, "1.0.0")
    result = json.loads(stored(server, NODES, NODE)["metadata"]["annotations"][marks.LAST_RESULT])
    assert result["outcome"] == "rolled-back"
    assert not result.keys() & {"from", "failed_version", "failed_as"}


def test_a_partition_is_proven_by_its_version(asking: Asking) -> None:
    """The kernel may have named the disks anew, so the host is not asked for a device."""
    host = Answers([said(NEW)])
    context = asking(host)
    progress = replace(PROGRESS, targets={Source.ROLLBACK: "/dev/nvme0n1p4"})
    prove_reboot_worked(context, cast("SshHost", context.host), progress)
    assert host.asked == 0
    # An image is no device, so the host is asked which one it has booted.
    image = replace(progress, targets={Source.ROLLBACK: f"sha256:{'a' * 64}"})
    with pytest.raises(NodeFailure, match="not verified by rollback"):
        prove_reboot_worked(context, cast("SshHost", context.host), image)


def undo_after(
    error: StepError, context: NodeContext, host: Answers, boot: BootFacts | None = None
) -> StepError:
    """What the error is after the undo, which it needs in a rollback."""
    back = replace(context, policy=replace(context.policy, rollback="1.0.0"))
    host.asked = 0
    host.rebooted = 0
    ssh_host = cast("SshHost", back.host)
    seen = boot or BootFacts("", "", "")
    with pytest.raises(StepError) as failed, undoing_failed_rollback(back, ssh_host, seen):
        raise error
    return failed.value


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (said("no id"), "its response has no boot ID"),
        (said(OLD, OTHER), "a different machine answers"),
        (None, "it cannot be reached"),
    ],
)
def test_an_undo_without_an_answer_of_the_host_is_part_of_the_failure(
    answer: CommandResult | None, why: str, asking: Asking
) -> None:
    host = Answers([answer])
    failed = undo_after(NodeFailure(Outcome.NOT_REBOOTED, "no reboot"), asking(host), host)
    assert failed.message.startswith("no reboot; its next reboot may boot its other version")
    assert why in failed.message
    assert host.rebooted == 0


def test_only_a_host_that_may_run_the_left_version_is_asked_to_boot_it(asking: Asking) -> None:
    host = Answers([said(OLD, version="1.0.0")])
    context = asking(host)
    failed = undo_after(NodeFailure(Outcome.NOT_READY, "why"), context, host)
    assert (failed.message, host.rebooted) == ("why", 1)
    # The undo has the time of a request for a reboot.
    assert host.longest == 90
    undo_after(NodeRemovedError("its Node was deleted"), context, host)
    assert host.asked == 0
    undo_after(NodeFailure(Outcome.NOT_BACK, "away"), context, host)
    assert host.asked == 0
    undo_after(NodeFailure(Outcome.NOT_READY, "why"), context, host, BOOT)
    assert host.asked == 0


def test_a_process_that_has_lost_the_lock_undoes_nothing(asking: Asking) -> None:
    def fenced() -> None:
        raise FencedError("another process has the lock")

    host = Answers([said(OLD)])
    context = replace(asking(host), check_may_act=fenced)
    failed = undo_after(StepError("the API server does not respond"), context, host)
    assert isinstance(failed, FencedError)
    assert host.asked == 0


def ended_after_failure(context: NodeContext) -> NodeResult:
    failure = NodeFailure(Outcome.CHECK_FAILED, "its check failed")
    return end_without_success(context, Progress(phase=Phase.DRAINED, marked=True), failure)


def test_a_node_whose_lock_is_lost_before_its_end_is_written_is_fenced(
    asking: Asking, server: StandaloneApi
) -> None:
    def fenced() -> None:
        raise FencedError("another process has the lock", hint="Do nothing more.")

    node_before = stored(server, NODES, NODE)
    result = ended_after_failure(replace(asking(Answers([None])), check_may_act=fenced))
    assert (result.outcome, result.edge, result.left_cordoned) == (Outcome.FENCED, None, True)
    assert result.message == "another process has the lock; before: its check failed"
    assert result.hint == "Do nothing more."
    assert stored(server, NODES, NODE) == node_before


def test_a_node_that_another_rollout_marks_before_its_end_is_written_is_fenced(
    asking: Asking, server: StandaloneApi
) -> None:
    context = asking(Answers([None]))
    change(server, NODES, NODE, metadata={"annotations": {marks.RUN: "run-2"}})
    result = ended_after_failure(context)
    assert (result.outcome, result.edge, result.left_cordoned) == (Outcome.FENCED, None, True)
    assert result.finding == NodeMarkedByOther(NODE, "run-2")


def test_a_stop_does_not_keep_a_refused_reboot_from_being_undone(asking: Asking) -> None:
    def stopped() -> None:
        raise StoppedError

    host = Answers([said(OLD)])
    context = replace(asking(host), check_may_act=stopped)
    failed = undo_after(RebootError("the host refuses to reboot"), context, host)
    assert isinstance(failed, RebootError)
    assert host.rebooted == 1
    # Before its command was sent, there is nothing to undo.
    failed = undo_after(StoppedError(), context, host)
    assert isinstance(failed, StoppedError)
    assert host.asked == 0


MARKS = {
    marks.RUN: "run-1",
    marks.PHASE: "rebooting",
    marks.BOOT_ID_BEFORE: OLD,
    marks.CORDONED_BY_US: "true",
}
UndoWhile = Callable[[Callable[[], object]], Aborted]
Undo = Callable[[str, bool], Aborted]


@pytest.fixture
def undo_while(server: StandaloneApi, api: ClusterApi, recorder: Recorder) -> UndoWhile:
    """Abort what left a node in its reboot; this happens while its host is asked once, and does not
    answer.
    """
    node = {
        "metadata": {"name": NODE, "uid": "u", "annotations": MARKS},
        "spec": {"unschedulable": True},
    }
    put(server, NODES, {**node, "status": status(OLD, ready=False)})

    def run(meanwhile: Callable[[], object]) -> Aborted:
        host = Answers([None], meanwhile)
        return abort(
            RolloutHosts({NODE: Host(NODE, "127.0.0.1")}, cast("Any", host)),
            api,
            clock=SystemClock(),
            observers=(recorder,),
            lock_options=LockOptions("ann", seconds=1),
            wait=0,
        )

    return run


@pytest.fixture
def undo(server: StandaloneApi, undo_while: UndoWhile) -> Undo:
    """The Node reports this meanwhile."""

    def run(boot_id: str, ready: bool) -> Aborted:  # noqa: FBT001 - as it is reported
        return undo_while(lambda: change(server, NODES, NODE, status=status(boot_id, ready=ready)))

    return run


def test_one_whose_node_vanishes_while_its_host_is_asked_needs_no_undoing(
    server: StandaloneApi, undo_while: UndoWhile
) -> None:
    aborted = undo_while(lambda: server.store.remove(NODES, NODE))
    assert aborted.reverted == (NODE,)
    assert aborted.left_cordoned == {}


@pytest.mark.parametrize("is_cordoned", [False, True])
def test_one_whose_marks_were_removed_is_left_cordoned_only_if_it_still_is(
    server: StandaloneApi, undo_while: UndoWhile, *, is_cordoned: bool
) -> None:
    def remove_marks() -> None:
        metadata = {"annotations": dict.fromkeys(MARKS)}
        spec = {"unschedulable": is_cordoned or None}
        change(server, NODES, NODE, metadata=metadata, spec=spec, status=status(NEW, ready=True))

    aborted = undo_while(remove_marks)
    assert (NODE in aborted.left_cordoned) == is_cordoned
    assert (NODE in aborted.reverted) != is_cordoned


def test_an_abort_that_has_lost_its_lock_leaves_the_record_and_the_memory(
    server: StandaloneApi, undo_while: UndoWhile
) -> None:
    def has_noticed() -> bool:
        """Whether the Lease was read again after a conflict."""
        statuses = [request.status for request in server.server.requests]
        return 409 in statuses[:-1]

    def resume_elsewhere() -> None:
        metadata = {"name": marks.RECORD_NAME, "namespace": marks.LEASE_NAMESPACE}
        put(server, CONFIGMAPS, {"metadata": metadata})
        holder = {"holderIdentity": "ben"}
        change(server, LEASES, marks.LEASE_NAME, marks.LEASE_NAMESPACE, spec=holder)
        wait_until(has_noticed)

    with pytest.raises(FencedError, match="held by ben now"):
        undo_while(resume_elsewhere)
    remaining = [obj["metadata"]["name"] for obj in server.store.items(CONFIGMAPS)]
    assert remaining == [marks.RECORD_NAME]


def test_one_that_comes_back_while_its_host_is_asked_is_undone(undo: Undo) -> None:
    aborted = undo(NEW, True)
    assert aborted.reverted == (NODE,)
    assert aborted.left_cordoned == {}


@pytest.mark.parametrize(
    ("boot_id", "ready", "state"), [(OLD, True, "Ready"), (NEW, False, "not Ready")]
)
def test_one_that_is_away_is_left_with_how_it_stands_then(
    boot_id: str, state: str, undo: Undo, *, ready: bool
) -> None:
    aborted = undo(boot_id, ready)
    assert aborted.reverted == ()
    assert aborted.left_cordoned[NODE] == f"it may be rebooting right now, and is {state}"
