"""Undoing a node whose reboot may have been asked for: it is judged by how it stands when the watch ends."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from rollout.adapters.clock import SystemClock
from rollout.errors import SshUnreachableError
from rollout.execution.rollout.abort import abort
from rollout.execution.rollout.ledger import Aborted
from rollout.execution.rollout.ports import Ports, RunOptions
from rollout.lab.api.resources import NODES
from rollout.model import marks
from rollout.model.host import Host
from rollout.ports import ClusterApi, CommandResult
from tests.execution.conftest import Recorder
from tests.execution.drains import Json, put
from tests.standalone_api import StandaloneApi

pytestmark = pytest.mark.in_memory
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


def test_one_that_comes_back_while_its_host_is_asked_is_undone(undo: Undo, server: StandaloneApi) -> None:
    aborted = undo(lambda: change_status(server, "new", ready=True))
    assert (aborted.reverted, aborted.left_cordoned) == (("n1",), {})


@pytest.mark.parametrize(("boot_id", "ready", "state"), [("old", True, "Ready"), ("new", False, "not Ready")])
def test_one_that_is_away_is_left_with_how_it_stands_then(
    boot_id: str, state: str, undo: Undo, server: StandaloneApi, *, ready: bool
) -> None:
    aborted = undo(lambda: change_status(server, boot_id, ready=ready))
    assert aborted.reverted == ()
    assert f"it may be rebooting right now and is {state};" in aborted.left_cordoned["n1"]
