"""What a host's source says after the reboot, as a proof of it."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from rollout.adapters.clock import SystemClock
from rollout.errors import SshUnreachableError
from rollout.execution.node.proof import unmet
from rollout.execution.node.transitions import NEXT, IllegalTransitionError, advance, blamed, is_final
from rollout.execution.rollout.abort import abort
from rollout.execution.rollout.ledger import Aborted
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.lab.api.resources import NODES
from rollout.model import marks
from rollout.model.detection import Answer, Sign, Source
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.ports import ClusterApi, CommandResult
from tests.execution.conftest import Recorder
from tests.execution.drains import Json, put
from tests.standalone_api import StandaloneApi


def ostree(current: str, answer: Answer = Answer.NOT_NEEDED) -> Sign:
    return Sign(Source.RPM_OSTREE, answer, "rpm-ostree did not answer", current=current)


@pytest.mark.parametrize(
    ("sign", "why", "is_final"),
    [
        (ostree("b" * 64), "", True),
        # the next update may be staged already
        (ostree("b" * 64, Answer.NEEDED), "", True),
        (ostree("a" * 64), "deployment aaaaaaaaaaaa is booted, not bbbbbbbbbbbb", True),
        (ostree("", Answer.NONE), "rpm-ostree did not answer", False),
        (Sign(Source.REBOOT_REQUIRED, Answer.NOT_NEEDED), "", True),
        # /run is new with each boot: what is there now was put there by this one
        (Sign(Source.REBOOT_REQUIRED, Answer.NEEDED, "the file"), "still the file", True),
        (Sign(Source.REBOOT_REQUIRED, Answer.NONE, "not known"), "not known", False),
        (Sign(Source.COMMAND, Answer.NOT_NEEDED), "", True),
        (Sign(Source.COMMAND, Answer.NEEDED, "exited with 0"), "still exited with 0", False),
        (Sign(Source.COMMAND, Answer.NONE, "did not run"), "did not run", False),
    ],
)
def test_a_sign_after_the_reboot(sign: Sign, why: str, *, is_final: bool) -> None:
    missing, final = unmet(sign, "b" * 64)
    assert (missing, final or not why) == (why, is_final)


def test_a_version_that_runs_is_not_held_for_what_else_was_not_proven() -> None:
    planned = PlannedNode("w-1", "b", "u", "1.0", "2.0", 0, 0)
    assert blamed(planned, Outcome.ROLLED_BACK, "1.0", is_refused=False) == planned
    assert blamed(planned, Outcome.NOT_READY, "2.0", is_refused=False) == planned
    assert blamed(planned, Outcome.ROLLED_BACK, "2.0", is_refused=False) == replace(planned, staged_version="")


MARKS = {marks.RUN: "run-1", marks.PHASE: "rebooting", marks.BOOT_ID_BEFORE: "old", marks.CORDONED_BY_US: "true"}


@dataclass
class Away:
    """A host that gives no answer, and does something before it does not."""

    meanwhile: Callable[[], object]

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        self.meanwhile()
        raise SshUnreachableError("the connection was refused")

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        raise NotImplementedError

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, CommandResult]]:
        raise NotImplementedError

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        yield


def status(boot_id: str, *, ready: bool) -> Json:
    return {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "nodeInfo": {"bootID": boot_id, "osImage": "Flatcar", "kubeletVersion": "v1.36.0"},
    }


def change_status(server: StandaloneApi, boot_id: str, *, ready: bool) -> None:
    def change() -> None:
        found = server.store.get(NODES, "n1")
        assert found is not None
        server.store.put(NODES, {**found, "status": status(boot_id, ready=ready)})

    server.call(change)


Undo = Callable[[Callable[[], object]], Aborted]


@pytest.fixture
def undo(server: StandaloneApi, api: ClusterApi, recorder: Recorder) -> Undo:
    """Abort what left a node in its reboot, with no time to watch it beyond one look at its host."""
    node = {"metadata": {"name": "n1", "uid": "u", "annotations": MARKS}, "spec": {"unschedulable": True}}
    put(server, NODES, {**node, "status": status("old", ready=False)})

    def run(meanwhile: Callable[[], object]) -> Aborted:
        ports = Ports(api, Away(meanwhile), SystemClock(), recorder)
        return abort({"n1": Host("n1", "127.0.0.1")}, ports, RunOptions(1, "ann"), wait=0)

    return run


@pytest.mark.in_memory
def test_one_that_comes_back_while_its_host_is_asked_is_undone(undo: Undo, server: StandaloneApi) -> None:
    aborted = undo(lambda: change_status(server, "new", ready=True))
    assert (aborted.reverted, aborted.left_cordoned) == (("n1",), {})


@pytest.mark.in_memory
@pytest.mark.parametrize(("boot_id", "ready", "state"), [("old", True, "Ready"), ("new", False, "not Ready")])
def test_one_that_is_away_is_left_with_how_it_stands_then(
    boot_id: str, state: str, undo: Undo, server: StandaloneApi, *, ready: bool
) -> None:
    aborted = undo(lambda: change_status(server, boot_id, ready=ready))
    assert aborted.reverted == ()
    assert f"it may be rebooting right now and is {state};" in aborted.left_cordoned["n1"]


def test_every_phase_is_in_the_table_and_can_end() -> None:
    assert set(NEXT) == set(Phase)
    for phase in Phase:
        assert is_final(phase) or Phase.FAILED in NEXT[phase]


def test_done_is_reached_only_through_every_proof() -> None:
    order = [Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED, Phase.REBOOTING]
    order += [Phase.BOOTED, Phase.READY, Phase.DONE]
    for current, following in pairwise(order):
        assert advance(current, following) is following


@pytest.mark.parametrize(
    ("current", "following"),
    [
        (Phase.PENDING, Phase.REBOOTING),
        (Phase.DRAINING, Phase.REBOOTING),
        (Phase.REBOOTING, Phase.DONE),
        (Phase.DONE, Phase.FAILED),
    ],
)
def test_what_is_not_in_the_table_raises(current: Phase, following: Phase) -> None:
    with pytest.raises(IllegalTransitionError, match=following):
        advance(current, following)
