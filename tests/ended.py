"""The real program, started as another machine would start it, and what it has said once it has ended.

No test lets pass what no user may see, nor JSON that is not what the published schemas say.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, AnyStr
from weakref import WeakSet

from rollout.cli.wiring import HURRIED_VARIABLE
from tests.checked_journals import watch_journals_of
from tests.program_server import fork_program
from tests.published import assert_printed, document_of

PROGRAM = (sys.executable, "-m", "rollout")
# So many times shorter than a user's are the waits of programs in tests.
HURRIED = "20"
# Variables that the interpreter reads while it starts.
READ_EARLY = ("LANG", "LC_", "PYTHON")
# The locale that Python chooses if there is none.
SAME_LOCALE = "C.UTF-8"
# Warnings that Python does not show to users.
SILENT = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    def ends(self, code: int) -> "Ended":
        """Itself, if that was its exit code."""
        assert self.code == code, self.stderr or self.stdout
        return self

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last of them, which is the summary."""
        assert self.stdout, self.stderr
        last = self.lines[-1]
        assert last["type"] == "summary"
        return last

    @property
    def plan(self) -> dict[str, Any]:
        """The plan that was run; notices may come before it."""
        plan: dict[str, Any] = next(line["plan"] for line in self.lines if line["type"] == "plan")
        return plan

    @property
    def failures(self) -> dict[str, dict[str, Any]]:
        """The failed nodes' entries, by name."""
        return {entry["node"]: entry for entry in self.summary["failed"]}

    @property
    def outcomes(self) -> dict[str, str]:
        """How each node ended that was begun."""
        failed = {name: entry["outcome"] for name, entry in self.failures.items()}
        return {**dict.fromkeys(self.summary["succeeded"], "succeeded"), **failed}

    def steps(self, node: str) -> list[tuple[str, str]]:
        """A node's phases with what was said in them."""
        steps = (line for line in self.lines if line["type"] == "step" and line["node"] == node)
        return [(step["phase"], step["detail"]) for step in steps]


def invoked(home: Path, environment: Mapping[str, str], arguments: Sequence[str]) -> Ended:
    """The real program in this process: in an empty home, with nothing of this machine's settings.

    A test that looks at it meanwhile, or sends it a signal, or is about its streams or its start,
    starts a process.
    """
    if _is_read_early(environment):
        return end_of(start(home, environment, arguments))
    from rollout.cli.main import run  # noqa: PLC0415 - as it is found by now

    stdout = _captured()
    stderr = _captured()
    with (
        _surroundings(home, environment),
        stdout,
        stderr,
        Path(os.devnull).open(encoding="utf-8") as nothing,
    ):
        streams = sys.stdin, sys.stdout, sys.stderr
        sys.stdin = nothing
        sys.stdout = stdout
        sys.stderr = stderr
        try:
            code = int(run(list(arguments)))
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
        ended = Ended(code, _text(stdout), _text(stderr))
    assert_well_said(ended.stdout)
    assert_well_said(ended.stderr)
    if ended.stdout:
        assert_as_published([*PROGRAM, *arguments], ended.stdout, code)
    return ended


@contextmanager
def _surroundings(home: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Environment, folder and time zone as of a process of its own; and signals as before it."""
    variables = dict(os.environ)
    given = _variables(home, environment)
    folder = Path.cwd()
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    os.environ.clear()
    os.environ.update(given)
    os.chdir(home)
    time.tzset()
    try:
        with warnings.catch_warnings():
            for category in SILENT:
                warnings.simplefilter("ignore", category)
            yield
    finally:
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        time.tzset()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _captured() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()


def start(
    home: Path,
    environment: Mapping[str, str],
    arguments: Sequence[str],
    stdin: int = subprocess.DEVNULL,
    *,
    script: str = "",
    is_fresh: bool = False,
) -> subprocess.Popen[str]:
    """The real program in a process of its own; else as `invoked`.

    `script`: Python code that changes the program, and runs it. `is_fresh`: in a new interpreter.
    """
    program = (sys.executable, "-c", script) if script else PROGRAM
    process_class = subprocess.Popen if is_fresh else _process_class(environment)
    return process_class(
        [*program, *arguments],
        env=_variables(home, environment),
        cwd=home,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_on_terminal(
    home: Path, environment: Mapping[str, str], arguments: Sequence[str], terminal: int
) -> subprocess.Popen[bytes]:
    """The same with all streams on a terminal, in a session of its own: what is typed there is
    nobody else's.
    """
    return _process_class(environment)(
        [*PROGRAM, *arguments],
        env=_variables(home, environment),
        cwd=home,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )


def _variables(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), HURRIED_VARIABLE: HURRIED, **environment}


def end_of(process: subprocess.Popen[str], seconds: float = 100) -> Ended:
    """Wait for it; whoever takes longer does not outlive its test."""
    with process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        finally:
            process.kill()
    return Ended(process.returncode, stdout, stderr)


def answered(
    home: Path, environment: Mapping[str, str], arguments: Sequence[str], answer: str
) -> Ended:
    """As at a terminal, at which its question is answered so."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return end_of(start(home, environment, arguments, stdin=theirs))
    finally:
        os.close(ours)
        os.close(theirs)


@contextmanager
def none_left() -> Iterator[None]:
    """Each program that is started meanwhile ends by then, also where a test has failed and let go of it.

    Python warns of such a process when it drops it, which may be in any later test.
    """
    before = set(_STARTED)
    yield
    for process in set(_STARTED) - before:
        if is_program(process.args):
            with process:
                process.kill()


def assert_well_said(text: str) -> None:
    """What a user never sees, whatever they typed: a traceback, or the word that the program itself
    is wrong.
    """
    for mark in ("Traceback (most recent call last)", "This is a bug in rollout"):
        assert mark not in text, text


def assert_as_published(command: object, printed: str, code: int | None) -> None:
    """What is printed for programs is what the published schemas say, whichever test has it
    printed.
    """
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    if "rollout" in words and document_of(words[words.index("rollout") + 1 :]):
        assert_printed(words[words.index("rollout") + 1 :], printed, code)


_STARTED = WeakSet["HeardProcess[Any]"]()


class HeardProcess(subprocess.Popen[AnyStr]):
    """Every process that tests start: where it was the program, what was heard from it has to be
    well said.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        _STARTED.add(self)
        if is_program(self.args):
            watch_journals_of(named.get("env") or os.environ)

    def communicate(self, input: Any = None, timeout: float | None = None) -> Any:  # noqa: A002 - its name
        """As of any process: text or bytes of what it said, None for streams that are not heard."""
        heard: Any = super().communicate(input, timeout)
        if is_program(self.args):
            texts = [
                said if isinstance(said, str) else said.decode(errors="replace")
                for said in heard
                if said
            ]
            for text in texts:
                assert_well_said(text)
            if heard[0]:
                assert_as_published(self.args, texts[0], self.returncode)
        return heard


class ForkedProgram(HeardProcess[AnyStr]):
    """The program, forked from a process that has imported it (`program_server.py`)."""

    def _execute_child(self, *values: Any) -> None:
        method = super()._execute_child  # type: ignore[misc]
        start = signature(method).bind(*values).arguments
        _, flag, program, *arguments = start["args"]
        self.pid = fork_program(
            arguments,
            script=program if flag == "-c" else "",
            environment=start["env"],
            folder=start["cwd"],
            streams=(start["p2cread"], start["c2pwrite"], start["errwrite"]),
            new_session=start["start_new_session"],
        )
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(start[name] for name in pipes))  # type: ignore[attr-defined]


def _process_class(environment: Mapping[str, str]) -> type[subprocess.Popen[Any]]:
    """Return `ForkedProgram`, unless only a fresh interpreter would read this environment."""
    is_forked = sys.platform == "linux" and not _is_read_early(environment)
    return ForkedProgram if is_forked else subprocess.Popen


def _is_read_early(environment: Mapping[str, str]) -> bool:
    return any(
        name.startswith(READ_EARLY) and value != SAME_LOCALE for name, value in environment.items()
    )


def is_program(command: object) -> bool:
    """Whether a command line, or a line for a shell in it, starts the program."""
    words = command if isinstance(command, list | tuple) else [command]
    return (
        re.search(r"-m\W+rollout\b|\brollout\.cli\.entry\b", " ".join(map(str, words))) is not None
    )
