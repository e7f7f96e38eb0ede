"""A host that does not come back from its reboot, and what reboot.rescue does about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from rollout.errors import (
    FencedError,
    HostKeyError,
    InputError,
    SshAuthError,
    SshBrokenError,
    SshError,
    SshStalledError,
    StepError,
)
from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.marking import mark_phase
from rollout.execution.node.rejoin import retry_if_node_lost
from rollout.execution.node.rescue import await_boot_or_rescue
from rollout.execution.node.ssh_host import SshHost
from rollout.gather.hosts.probe import BootFacts
from rollout.lab.api.resources import NODES
from rollout.model import marks
from rollout.model.host import Host
from rollout.model.progress import NodeRescued, Outcome, Phase
from rollout.model.rescue import RescueVariable
from rollout.model.tool_output import CommandEnd
from rollout.ports import CommandResult
from tests.execution.conftest import Recorder
from tests.execution.drains import NODE, change, stored
from tests.execution.simulated import OpenEngine
from tests.execution.test_reboot import (
    MACHINE,
    NEW,
    OLD,
    PROGRESS,
    TARGETS,
    Answers,
    Asking,
    Watching,
    asking,
    delete,
    register,
    said,
    status,
    watching,
)
from tests.standalone_api import StandaloneApi
from tests.waiting import wait_until

pytestmark = pytest.mark.in_memory
__all__ = ["asking", "watching"]


@dataclass
class PowerCycle:
    """A command that gives the host other answers, unless it has a problem."""

    host: Answers
    after: Sequence[CommandResult | None] = (said(NEW),)
    problem: str = ""
    meanwhile: Callable[[], object] = lambda: None
    environments: list[Mapping[str, str]] = field(default_factory=list)
    was_stopped: bool = False

    def __call__(
        self, environment: Mapping[str, str], *, is_stopped: Callable[[], bool]
    ) -> CommandEnd:
        self.environments.append(environment)
        self.meanwhile()
        self.was_stopped = is_stopped()
        self.host.answers = self.after
        self.host.asked = 0
        return CommandEnd(self.problem, output=("power was off", "power is on"))


@dataclass(kw_only=True)
class AnswersOnceMarked(Answers):
    """A host that is silent until its Node has been marked for the rescue, and then answers so."""

    server: StandaloneApi
    answer: CommandResult | SshError

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        if marks.RESCUED in stored(self.server, NODES, NODE)["metadata"]["annotations"]:
            if isinstance(self.answer, SshError):
                raise self.answer
            self.answers = [self.answer]
        return super().run(host, command, timeout=timeout)


def silent(asking: Asking, server: StandaloneApi) -> tuple[Answers, NodeContext]:
    """A host that went down for its reboot a while ago."""
    host = Answers([None])
    return host, down(asking, server, host)


def down(asking: Asking, server: StandaloneApi, host: Answers) -> NodeContext:
    context = asking(host)
    report(server, OLD, "Unknown")
    return context


def report(server: StandaloneApi, boot_id: str, ready: str) -> None:
    conditions = [{"type": "Ready", "status": ready}]
    change(server, NODES, NODE, status={**status(boot_id, ready=True), "conditions": conditions})


def boot_of(
    context: NodeContext, rescue: PowerCycle | None, *, in_doubt: bool = False
) -> BootFacts:
    context = replace(context, engine=OpenEngine(rescue=rescue))
    host = cast("SshHost", context.host)
    return await_boot_or_rescue(context, host, TARGETS, in_doubt=in_doubt)


def failure(context: NodeContext, rescue: PowerCycle | None) -> NodeFailure:
    with pytest.raises(NodeFailure) as failed:
        boot_of(context, rescue)
    return failed.value


def test_a_silent_host_is_rescued_once_and_its_boot_awaited_anew(
    asking: Asking, server: StandaloneApi, recorder: Recorder
) -> None:
    host, context = silent(asking, server)
    rescue = PowerCycle(host, after=[*[None] * 9, said(NEW)])
    began = context.now
    assert boot_of(context, rescue) == BootFacts(NEW, MACHINE, "2.0.0")
    assert context.now - began > context.policy.reboot_timeout
    assert rescue.environments == [
        {
            RescueVariable.RUN: "run-1",
            RescueVariable.NODE: NODE,
            RescueVariable.ADDRESS: "192.0.2.1",
        }
    ]
    assert stored(server, NODES, NODE)["metadata"]["annotations"][marks.RESCUED] == OLD
    (event,) = (event for event in recorder.events if isinstance(event, NodeRescued))
    assert (event.node, event.problem) == (NODE, "")
    assert event.output == ("power was off", "power is on")


def test_a_rescue_that_does_not_help_is_part_of_the_failure_and_never_repeated(
    asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    rescue = PowerCycle(host, after=[None], problem="rescue command 'cycle' exited with 3")
    failed = failure(context, rescue)
    assert failed.outcome is Outcome.NOT_BACK
    assert failed.message.endswith(
        "; rescue command 'cycle' exited with 3: power was off; power is on"
    )
    # Another process that takes the node up finds the mark.
    again = failure(context, rescue)
    assert again.message.endswith(
        "reboot.rescue was not run: it may already have been started for this reboot"
    )
    assert len(rescue.environments) == 1


def test_the_mark_of_an_earlier_reboot_prevents_no_rescue(
    asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    annotations = stored(server, NODES, NODE)["metadata"]["annotations"]
    change(server, NODES, NODE, metadata={"annotations": {**annotations, marks.RESCUED: NEW}})
    rescue = PowerCycle(host)
    boot_of(context, rescue)
    assert len(rescue.environments) == 1


@pytest.mark.parametrize("answer", [said(OLD), said("no id"), said(NEW, "d" * 32)])
def test_a_host_that_answers_is_never_rescued(
    answer: CommandResult, asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    host.answers = [answer]
    rescue = PowerCycle(host)
    assert "rescue" not in failure(context, rescue).message
    assert rescue.environments == []
    assert marks.RESCUED not in stored(server, NODES, NODE)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (said(OLD), Outcome.NOT_REBOOTED),
        (said("no id"), Outcome.NOT_BACK),
        (said(NEW, "d" * 32), Outcome.NOT_BACK),
        (SshAuthError("permission denied"), Outcome.NOT_BACK),
        (SshBrokenError("the host ended the connection"), Outcome.NOT_BACK),
        (SshStalledError("no response within 15 s"), Outcome.NOT_BACK),
        (HostKeyError("the key has changed"), Outcome.NOT_BACK),
    ],
)
def test_a_host_that_answers_at_the_last_moment_is_not_rescued(
    answer: CommandResult | SshError, outcome: Outcome, asking: Asking, server: StandaloneApi
) -> None:
    host = AnswersOnceMarked([None], server=server, answer=answer)
    context = down(asking, server, host)
    rescue = PowerCycle(host)
    failed = failure(context, rescue)
    assert rescue.environments == []
    assert failed.outcome is outcome
    assert failed.message.endswith("reboot.rescue was not run: the host responded")


@pytest.mark.parametrize("boot_id", [OLD, NEW])
@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_host_whose_kubelet_reports_is_up_whatever_ssh_says(
    boot_id: str, ready: str, asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    report(server, boot_id, ready)
    rescue = PowerCycle(host)
    said_why = f"its Node's Ready condition is {ready}, not Unknown"
    assert said_why in failure(context, rescue).message
    assert rescue.environments == []


def test_a_node_that_cannot_be_marked_is_not_back(
    asking: Asking, server: StandaloneApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def conflict(*_: object) -> None:
        raise StepError("the Node changes too often to be written")

    host, context = silent(asking, server)
    monkeypatch.setattr("rollout.execution.node.rescue.change_node", conflict)
    rescue = PowerCycle(host)
    failed = failure(context, rescue)
    assert failed.outcome is Outcome.NOT_BACK
    assert failed.message.endswith("was not run: the Node changes too often to be written")
    assert rescue.environments == []


def test_a_host_whose_rescue_cannot_be_started_is_not_back(
    asking: Asking, server: StandaloneApi
) -> None:
    def fill_disk() -> None:
        raise InputError("a rescue command needs a directory for temporary files")

    host, context = silent(asking, server)
    failed = failure(context, PowerCycle(host, meanwhile=fill_disk))
    assert failed.outcome is Outcome.NOT_BACK
    why = "reboot.rescue was not run: a rescue command needs a directory for temporary files"
    assert failed.message.endswith(why)


def test_a_node_that_somebody_uncordoned_is_not_power_cycled(
    asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    change(server, NODES, NODE, spec={"unschedulable": False})
    rescue = PowerCycle(host)
    failed = failure(context, rescue)
    assert "reboot.rescue was not run" in failed.message
    assert "was uncordoned outside this rollout" in failed.message
    assert failed.outcome is Outcome.NOT_BACK
    assert rescue.environments == []


def test_without_a_command_the_failure_is_as_before(asking: Asking, server: StandaloneApi) -> None:
    _host, context = silent(asking, server)
    assert "rescue" not in failure(context, None).message


def test_a_process_that_loses_its_lock_ends_the_command(
    asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    is_lost = False

    def check() -> None:
        if is_lost:
            raise FencedError("another process holds the lock")

    def lose() -> None:
        nonlocal is_lost
        is_lost = True

    rescue = PowerCycle(host, meanwhile=lose)
    with pytest.raises(FencedError):
        boot_of(replace(context, check_may_act=check), rescue)
    assert rescue.was_stopped


def test_a_reboot_in_doubt_is_not_requested_after_the_rescue(
    asking: Asking, server: StandaloneApi
) -> None:
    host, context = silent(asking, server)
    rescue = PowerCycle(host, after=[said(OLD)])
    with pytest.raises(NodeFailure) as failed:
        boot_of(context, rescue, in_doubt=True)
    assert failed.value.outcome is Outcome.NOT_REBOOTED
    assert host.rebooted == 0


def test_a_node_that_is_registered_again_keeps_the_mark(
    watching: Watching, server: StandaloneApi
) -> None:
    """A process that takes it up must not rescue its host again."""
    context = watching(Answers([None]))
    annotations = stored(server, NODES, NODE)["metadata"]["annotations"]
    change(server, NODES, NODE, metadata={"annotations": {**annotations, marks.RESCUED: OLD}})
    watched = context.watched
    assert watched is not None
    wait_until(lambda: marks.RESCUED in watched.view.items()[0].annotations)
    assert not watched.is_absent
    delete(server, context)
    register(server)
    retry_if_node_lost(context, PROGRESS, Phase.BOOTED, lambda: mark_phase(context, Phase.BOOTED))
    assert stored(server, NODES, NODE)["metadata"]["annotations"][marks.RESCUED] == OLD
