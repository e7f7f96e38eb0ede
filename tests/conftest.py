"""What tests of every room use: marks, a lab over the real wire, and processes that SIGINT
interrupts.
"""

import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario
from tests.checked_journals import assert_journals_hold, watch_journals
from tests.ended import HeardProcess, none_left
from tests.used_rights import unprinted

StartLab = Callable[..., Lab]

HERE = Path(__file__).parent
# Settings with two pools and a wait for load balancers.
POOLS = HERE / "pools.toml"
# What starts labs or programs, by folder; all else is pure, and fast but for single tests that are
# marked themselves.
SLOW = (
    "adapters",
    "apply",
    "cli",
    "execution",
    "executors",
    "lab",
    "operate",
    "security",
    "server",
)
# Whole folders of the exhaustive tier, but for what they mark as their sample.
EXHAUSTIVE = ("contract", "crash", "e2e", "stateful")
# So many cases of a table that starts things are run by default.
TABLE = 12
# Exhaustive runs try so many times the examples of a property.
MORE_EXAMPLES = 100
EXHAUSTIVE_SECONDS = 600

# A background job ignores SIGINT, and nohup has it ignore SIGHUP. What is ignored stays ignored in
# every process that is started from here; what is handled is the default again in them. pytest
# itself still survives the signal.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, lambda _number, _frame: None)


# The same examples each time, so that what fails has changed; the exhaustive tier hunts for new
# ones. How long one takes is the machine's business: several workers share two cores.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "exhaustive", settings.get_profile("repeatable"), derandomize=False, print_blob=True
)
settings.load_profile("repeatable")

# One rule at the one place where processes are started, `subprocess.run` included.
subprocess.Popen = HeardProcess  # type: ignore[misc]
watch_journals()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a test has started ends with it, and every journal that it has left keeps the rules."""
    with none_left():
        yield
    assert_journals_hold()


@pytest.fixture(autouse=True, scope="session")
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where kubectl keeps what it discovers of a lab: else in `$HOME/.kube`, and without a HOME in
    this folder.
    """
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
    """Import the tests without looking for garbage again and again: there is little, and what is
    here stays.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say of each test what it needs and which tier it is of, before `-m` chooses."""
    for item in items:
        if (
            folder_of(item.path) in SLOW
            or item.get_closest_marker("kubectl")
            or "start_lab" in getattr(item, "fixturenames", ())
        ):
            item.add_marker("slow")
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        mark_tier(cases)
        if settings.get_current_profile_name() == "exhaustive":
            try_more_examples(cases)


@cache
def folder_of(path: Path) -> str:
    return path.relative_to(HERE).parts[0]


def mark_tier(cases: list[pytest.Item]) -> None:
    """Leave of one test's cases so many to the default tier, spread over its table; the others are
    exhaustive.
    """
    first = cases[0]
    kept = len(cases)
    if sample := first.get_closest_marker("sample"):
        kept = sample.args[0] if sample.args else 1
    elif folder_of(first.path) in EXHAUSTIVE or first.get_closest_marker("exhaustive"):
        kept = 0
    elif first.get_closest_marker("slow"):
        kept = TABLE
    stay = {number * len(cases) // kept for number in range(kept)}
    for number, case in enumerate(cases):
        if number not in stay:
            case.add_marker("exhaustive")
            case.add_marker(pytest.mark.timeout(EXHAUSTIVE_SECONDS))


def try_more_examples(cases: list[pytest.Item]) -> None:
    """A hundred times what a property asks for, and the time for it."""
    test = getattr(cases[0], "obj", None)
    test = getattr(test, "__func__", test)
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if test is not None and given is not None:
        more = settings(given, max_examples=MORE_EXAMPLES * given.max_examples, derandomize=False)
        test._hypothesis_internal_use_settings = more
        for case in cases:
            case.add_marker(pytest.mark.timeout(6 * EXHAUSTIVE_SECONDS), append=False)


def assert_only_printed_rights(lab: Lab) -> None:
    """Whatever a test had the program do: it asked for nothing that `rollout manifests` does not
    grant.
    """
    assert unprinted(lab) == []


@contextmanager
def labs(folder: Path) -> Iterator[StartLab]:
    """Start labs, by a scenario's name or value; all are stopped at its end.

    `start("rollback", nodes=4, speed=120)`: nodes in all, and simulated seconds in a real one.
    """
    with ExitStack() as started:

        def start(
            scenario: str | Scenario = "default", *, speed: float = 120, nodes: int | None = None
        ) -> Lab:
            loaded = load_scenario(scenario) if isinstance(scenario, str) else scenario
            scaled = loaded if nodes is None else scale(loaded, nodes)
            directory = folder / f"lab-{len(list(folder.iterdir()))}"
            return started.enter_context(Lab(scaled, directory=directory, speed=speed))

        yield start


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[StartLab]:
    """Start labs for one test, of which the program has to ask no more than it is granted."""
    with labs(tmp_path) as start, ExitStack() as checks:

        def checked(*scenario: str | Scenario, **more: float) -> Lab:
            lab = start(*scenario, **more)
            checks.callback(assert_only_printed_rights, lab)
            return lab

        yield checked


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartLab]:
    """Start labs for all tests of a module."""
    with labs(tmp_path_factory.mktemp("labs")) as start:
        yield start
