"""What tests of every room use: marks, a lab over the real wire, and processes that SIGINT interrupts."""

import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario
from tests.ended import HeardProcess, none_left
from tests.used_rights import unprinted

StartLab = Callable[..., Lab]
T = TypeVar("T")

HERE = Path(__file__).parent
# Settings with two pools and a wait for load balancers.
POOLS = HERE / "pools.toml"
# What is slow, by folder; all else is pure, and fast but for single tests that are marked themselves.
MARKS = {
    **dict.fromkeys(
        ("adapters", "apply", "cli", "execution", "executors", "lab", "operate", "security", "server"), "lab"
    ),
    "contract": "contract",
    **dict.fromkeys(("crash", "stateful"), "chaos"),
    "e2e": "e2e",
}
# A test that is allowed more than this is begun before others.
LONG_SECONDS = 300

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a background job. What is ignored stays ignored in every process that is started from here; what is
    # handled is the default again in them. pytest itself goes on without an interruption, as whoever started it wants.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)


# The same examples each time, so that what fails has changed; new ones are hunted with --hypothesis-profile=default.
# How long one takes is the machine's business: several workers share two cores.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# One rule at the one place where processes are started, `subprocess.run` included.
subprocess.Popen = HeardProcess  # type: ignore[misc]


@pytest.fixture(autouse=True)
def as_is(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests whose subject is a traceback say so: theirs are processes as they are."""
    if request.node.get_closest_marker("traceback"):
        monkeypatch.setattr(subprocess, "Popen", HeardProcess.__base__)


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Whatever a test has started, and forgotten because it failed, is no warning in another."""
    with none_left():
        yield


@pytest.fixture(autouse=True, scope="session")
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where kubectl keeps what it discovers of a lab: else in `$HOME/.kube`, and without a HOME in this folder."""
    os.environ["KUBECACHEDIR"] = str(tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of the day as in UTC, wherever the tests run."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without looking for garbage again and again: there is little, and what is here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark each test by what it needs, before `-m` chooses; what it leaves is dealt out among the workers, if any."""
    mark(items)
    yield
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = dealt(items, begun_early, workers)


def mark(items: Sequence[pytest.Item]) -> None:
    """By its folder, or because it starts a lab."""
    for item in items:
        name = MARKS.get(item.path.relative_to(HERE).parts[0], "")
        if not name and "start_lab" in getattr(item, "fixturenames", ()):
            name = "lab"
        if name:
            item.add_marker(name)
        if name or item.get_closest_marker("kubectl"):
            item.add_marker("slow")


def begun_early(item: pytest.Item) -> str:
    """The group in which it comes before others, or nothing: alone where it may take minutes; all on real machines.

    These, and an image, are made by each worker that has one of their tests, which takes longer than most.
    """
    for name in ("e2e", "image"):
        if item.get_closest_marker(name):
            return name
    limit = item.get_closest_marker("timeout")
    return item.nodeid if limit is not None and limit.args[0] > LONG_SECONDS else ""


def dealt(items: Sequence[T], group_of: Callable[[T], str], workers: int) -> list[T]:
    """The same, so that each group comes first in the share of a worker, and none is divided, or begun last of all.

    `--dist worksteal` cuts shares in order and as even as can be; a worker that has nothing left takes from their ends.
    """
    groups, others, order = dict[str, list[T]](), list[T](), list[T]()
    for item in items:
        name = group_of(item)
        (groups.setdefault(name, []) if name else others).append(item)
    for number in range(workers):
        first = [item for group in [*groups.values()][number::workers] for item in group]
        rest = max(0, (len(items) - len(order)) // (workers - number) - len(first))
        order += [*first, *others[:rest]]
        del others[:rest]
    return order


def assert_only_printed_rights(lab: Lab) -> None:
    """Whatever a test had the program do: it asked for nothing that `rollout manifests` does not grant."""
    assert unprinted(lab) == []


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[StartLab]:
    """Start labs, by a scenario's name or value; all are stopped at the end of the test.

    `start_lab("rollback", nodes=4, speed=20)`: nodes in all, and simulated seconds in a real one.
    """
    with ExitStack() as labs:

        def start(scenario: str | Scenario = "default", *, speed: float = 20, nodes: int | None = None) -> Lab:
            loaded = load_scenario(scenario) if isinstance(scenario, str) else scenario
            scaled = loaded if nodes is None else scale(loaded, nodes)
            directory = tmp_path / f"lab-{len(list(tmp_path.iterdir()))}"
            lab = labs.enter_context(Lab.start(scaled, directory=directory, speed=speed))
            labs.callback(assert_only_printed_rights, lab)
            return lab

        yield start
