"""A rollout that is killed and gone on with: real processes, forked from one that has loaded the program already.

Loading it takes longer than most of the runs live; apart from that the children are what a shell
would start.
"""

import faulthandler
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from rollout.cli.wiring import HURRIED_VARIABLE
from rollout.errors import ExitCode
from tests.ended import HURRIED, assert_well_said


def run_program(arguments: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    """In the child: become `rollout` with this environment and output, as another machine would
    have it.
    """
    os.environ.clear()
    os.environ.update(environment)
    with Path(output).open("ab", buffering=0) as stream, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    faulthandler.enable()
    from rollout.cli.main import run  # noqa: PLC0415 - loaded by the server already

    try:
        code = run(arguments)
    except KeyboardInterrupt:  # as where the program begins, while it is still being put together
        code = ExitCode.INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass(frozen=True)
class Machine:
    """Starts commands. Every one has an empty home of its own: it comes from a machine that knows
    nothing.
    """

    context: ForkServerContext
    directory: Path
    numbers: Iterator[int] = field(default_factory=count)

    def next_number(self) -> int:
        """A number that no command has had yet."""
        return next(self.numbers)

    def start(
        self, number: int, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> ForkServerProcess:
        home = self.directory / f"home-{number}"
        home.mkdir()
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "USER": f"user-{number}",
            HURRIED_VARIABLE: HURRIED,
        }
        variables = {**own, **environment}
        process = self.context.Process(
            target=run_program, args=(list(arguments), variables, str(self.output(number)))
        )
        process.start()
        return process

    def output(self, number: int) -> Path:
        return self.directory / f"output-{number}"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash.conftest", "tests.crash.loaded"])
    yield Machine(context, tmp_path)
    for output in tmp_path.glob("output-*"):
        assert_well_said(output.read_text(errors="replace"))
