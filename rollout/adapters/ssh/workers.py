"""Many hosts asked by several processes: one interpreter uses one core, however many threads it has.

Each reads a task from its input, writes an answer a host to its output, and ends when its input
does: none outlives the process that began it, and none is waited for, which a pool of
`concurrent.futures` would be. What crosses is pickled: both ends are ours.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue

from rollout.adapters.secrets import child_environment
from rollout.gather.hosts.polling import Answer, side_by_side
from rollout.model.host import Host
from rollout.ports import CommandResult
from rollout.threads import in_background

# Below this, a process takes longer to begin than the hosts to answer.
_HOSTS_A_WORKER = 250
# Each takes some 40 MB.
_MOST_WORKERS = 4
# -P: no module is taken from the current folder, which may be anybody's.
_PROGRAM = (sys.executable, "-P", "-c", "from rollout.adapters.ssh.workers import work; work()")

Ask = Callable[[Host], CommandResult]


def workers_for(hosts: int) -> int:
    """How many processes it takes to ask so many hosts; 1 is this one."""
    return max(1, min(os.cpu_count() or 1, hosts // _HOSTS_A_WORKER, _MOST_WORKERS))


def in_processes(
    ask: Ask, hosts: Mapping[str, Host], *, concurrency: int, workers: int
) -> Generator[tuple[str, Answer]]:
    """Each host's answer or failure as it comes; those whose worker has ended before them are asked here.

    `ask` can be pickled, asks nobody else, and records no key. Closed, it ends the workers at once.
    """
    missing = dict(hosts)
    at_work = workers
    answers = SimpleQueue[tuple[str, Answer] | None]()
    # It finds our modules where we found them, and hears of an interrupt from us alone.
    environment = child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with ExitStack() as begun:
        for number in range(workers):
            task = pickle.dumps(
                (ask, dict(list(hosts.items())[number::workers]), -(-concurrency // workers))
            )
            process = subprocess.Popen(  # noqa: S603 - our own module
                _PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                process_group=0,
            )
            begun.enter_context(process)
            begun.callback(process.kill)
            in_background(partial(_pass_on, process, task, answers), "worker")
        while at_work:
            if (answer := answers.get()) is None:
                at_work -= 1
                continue
            del missing[answer[0]]
            yield answer
    yield from side_by_side(missing, ask, concurrency=concurrency)


def _pass_on(
    process: "subprocess.Popen[bytes]", task: bytes, answers: SimpleQueue[tuple[str, Answer] | None]
) -> None:
    """Give it its task, and put its answers into the queue; None is its end."""
    # What is missing where it ends early, or is ended, is asked again, or not wanted.
    with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        if process.stdin is not None and process.stdout is not None:
            process.stdin.write(task)
            process.stdin.flush()
            while True:
                answers.put(pickle.load(process.stdout))  # noqa: S301 - our own process
    answers.put(None)


def work() -> None:
    """Do one task, as the program of a worker; ends the process."""
    ask, hosts, concurrency = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that began this one
    in_background(_end_with_input, "input")
    for answer in side_by_side(hosts, ask, concurrency=concurrency):
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    # Nothing is left to be done, and to join all threads takes its time.
    os._exit(0)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
