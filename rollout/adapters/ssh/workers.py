"""Many hosts asked by several processes: one interpreter uses one core, however many threads it has.

Each reads a task from its input, writes an answer a host to its output, and ends when its input does: none outlives
the process that began it, which a pool of `concurrent.futures` would. What crosses is pickled: both ends are ours.
"""

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue

from rollout.adapters.secrets import child_environment
from rollout.gather.hosts.polling import Answer, side_by_side
from rollout.model.host import Host
from rollout.ports import CommandResult

_LOG = logging.getLogger("rollout.ssh")
# Below this, a process takes longer to begin than the hosts to answer.
_HOSTS_A_WORKER = 250
# Each takes some 40 MB.
_MOST_WORKERS = 4
_PROGRAM = "from rollout.adapters.ssh.workers import work; work()"

Ask = Callable[[Host], CommandResult]


def workers_for(hosts: int) -> int:
    """How many processes it takes to ask so many hosts; 1 is this one."""
    # Those cores that we may use, where the system tells: a container has fewer than its machine.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, hosts // _HOSTS_A_WORKER, _MOST_WORKERS))


def in_processes(
    ask: Ask, hosts: Mapping[str, Host], *, concurrency: int, workers: int
) -> Generator[tuple[str, Answer]]:
    """Each host's answer or failure as it comes; those whose worker has ended before them are asked here.

    `ask` can be pickled, asks nobody else, and records no key. Closed, it ends the workers at once.
    """
    shares = [dict(list(hosts.items())[number::workers]) for number in range(workers)]
    at_once = -(-concurrency // workers)
    answers = SimpleQueue[tuple[str, Answer] | None]()
    # Before a process is begun: what cannot be written down is a defect to be told, and no worker's end.
    tasks = [pickle.dumps((ask, share, at_once)) for share in shares]
    missing, at_work = dict(hosts), workers
    _LOG.info("%d hosts are asked by %d processes", len(hosts), workers)
    with ExitStack() as begun:
        for task in tasks:
            begun.enter_context(_worker(task, answers))
        while at_work:
            if (answer := answers.get()) is None:
                at_work -= 1
                continue
            missing.pop(answer[0])
            yield answer
        if missing:
            _LOG.info("%d hosts are asked again, here: their processes ended before them", len(missing))
            yield from side_by_side(missing, ask, concurrency=concurrency)


@contextmanager
def _worker(task: bytes, answers: SimpleQueue[tuple[str, Answer] | None]) -> Iterator[None]:
    """Keep a process at its task, and a thread that passes its answers on; it is ended at the end, whatever it does."""
    with subprocess.Popen(  # noqa: S603 - our own module
        # -P: no module is taken from the current folder, which may be anybody's.
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # It finds our modules where we found them, and hears of an interrupt from us alone.
        env=child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,
    ) as process:
        passing = threading.Thread(target=_pass_on, args=(process, task, answers), name="worker", daemon=True)
        passing.start()
        try:
            yield
        finally:
            process.kill()
            passing.join()


def _pass_on(process: "subprocess.Popen[bytes]", task: bytes, answers: SimpleQueue[tuple[str, Answer] | None]) -> None:
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
    threading.Thread(target=_end_with_input, daemon=True).start()
    for answer in side_by_side(hosts, ask, concurrency=concurrency):
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    # Nothing is left to be done, and to join all threads takes its time.
    os._exit(0)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
