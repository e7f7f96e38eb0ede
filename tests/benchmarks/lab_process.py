"""A lab in a process of its own, as benchmarks want it: nothing of it counts as the client's.

`with lab_process("typical", speed=5) as lab:` gives its variables, its scoreboard and what it has
cost.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))


@dataclass(frozen=True)
class LabProcess:
    """A lab that serves; `directory` holds its files, and is the home of its clients."""

    process: "subprocess.Popen[str]"
    directory: Path
    environment: Mapping[str, str]

    @property
    def scores(self) -> dict[str, Any]:
        """What its cluster has seen so far."""
        return self._told("scores")

    @property
    def requests(self) -> dict[str, int]:
        """How many requests its API server has had from rollout so far, by verb and resource."""
        return self._told("requests")

    def _told(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has used so far."""
        return cpu_of_process(self.process.pid)


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds of wall and of CPU, its workers' among them, and MB at the peak
    of one process.
    """

    code: int
    wall: float
    cpu: float
    memory: float
    # Of `cpu`, without the worker processes, which only do SSH.
    cpu_besides_ssh: float = 0.0


def cpu_of_process(pid: int) -> float:
    """Return the CPU seconds of a process, without its children. It may have ended, if nobody has
    waited for it.
    """
    # The name of the program, in parentheses, may hold spaces.
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks, system_ticks = int(words[11]), int(words[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def client_environment(lab: LabProcess) -> dict[str, str]:
    """Variables of a client that has nothing but this lab."""
    return {"PATH": os.environ["PATH"], "HOME": str(lab.directory), **lab.environment}


def measured(lab: LabProcess, words: Sequence[str], output: Path) -> Cost:
    """Run a command in the lab's folder to its end, and write what it prints into a file."""
    environment = {**client_environment(lab), "PYTHONPATH": str(Path(__file__).parents[2])}
    with output.open("wb") as stream:
        began = time.monotonic()
        process = subprocess.Popen(
            words, env=environment, cwd=lab.directory, stdin=subprocess.DEVNULL, stdout=stream
        )
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall = time.monotonic() - began
        own_cpu = cpu_of_process(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        process.returncode,
        wall,
        cpu=usage.ru_utime + usage.ru_stime,
        memory=usage.ru_maxrss / 1024,
        cpu_besides_ssh=own_cpu,
    )


@contextmanager
def lab_process(scenario: str, *, speed: float, nodes: int | None = None) -> Iterator[LabProcess]:
    """Start a lab, by a scenario's name or file, and end it with the context."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        command = [
            sys.executable,
            __file__,
            scenario,
            name,
            str(speed),
            *([str(nodes)] if nodes else []),
        ]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield LabProcess(process, Path(name), json.loads(process.stdout.readline()))
            finally:
                process.stdin.close()


def main(scenario: str, directory: str, speed: str, nodes: str = "") -> None:
    """Serve, and print the scoreboard or the requests, as each line that is read says, until
    standard input ends.
    """
    from rollout.adapters.kube.api import USER_AGENT  # noqa: PLC0415 - not loaded by the clients' starter
    from rollout.lab.hostplan import scale  # noqa: PLC0415
    from rollout.lab.lab import Lab  # noqa: PLC0415
    from rollout.lab.scenario import load_scenario  # noqa: PLC0415

    loaded = load_scenario(scenario)
    wanted = scale(loaded, int(nodes)) if nodes else loaded
    with Lab(wanted, directory=Path(directory), speed=float(speed)) as lab:
        print(json.dumps(lab.environment), flush=True)
        for word in sys.stdin:
            log = lab.call(
                lambda: [
                    record.target for record in lab.requests if record.user_agent == USER_AGENT
                ]
            )
            asked = Counter(f"{target.verb} {target.plural or target.path}" for target in log)
            print(
                json.dumps(asked if word.strip() == "requests" else lab.scoreboard().to_json()),
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
