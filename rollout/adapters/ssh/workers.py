"""Asks many hosts from several processes, for several cores.

A worker ends with its input. A pool of `concurrent.futures` would wait after an interrupt.
"""

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue

from rollout.adapters.programs import module_environment, worker_program
from rollout.gather.hosts.polling import Answer, ask_in_threads
from rollout.model.host import Host
from rollout.ports import CommandResult
from rollout.threads import in_background

# Fewer hosts are faster without another process.
_HOSTS_PER_WORKER = 250
# Each takes about 40 MB.
_MOST_WORKERS = 4
_PROGRAM = worker_program(__name__)

Ask = Callable[[Host], CommandResult]


def workers_for(hosts: int) -> int:
    """Return the number of processes; 1: only this one."""
    return max(1, min(os.cpu_count() or 1, hosts // _HOSTS_PER_WORKER, _MOST_WORKERS))


def in_processes(
    ask: Ask, hosts: Mapping[str, Host], *, concurrency: int, workers: int
) -> Generator[tuple[str, Answer]]:
    """Yield answers; closing the generator ends the workers.

    `ask` is pickled. If a worker ends early, this process asks its hosts.
    """
    unanswered = dict(hosts)
    running_workers = workers
    # None when a worker ends.
    answers = SimpleQueue[tuple[str, Answer] | None]()
    share_of_concurrency = math.ceil(concurrency / workers)
    with ExitStack() as processes:
        for number in range(workers):
            hosts_of_worker = dict(list(hosts.items())[number::workers])
            task = pickle.dumps((ask, hosts_of_worker, share_of_concurrency))
            process = _start_worker()
            processes.enter_context(process)
            processes.callback(process.kill)
            in_background(partial(_give_task_and_queue_answers, process, task, answers), "worker")
        while running_workers:
            node_and_answer = answers.get()
            if node_and_answer is None:
                running_workers -= 1
                continue
            node, answer = node_and_answer
            del unanswered[node]
            yield node, answer
    yield from ask_in_threads(unanswered, ask, concurrency=concurrency)


def _start_worker() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own module
        _PROGRAM,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=module_environment(),
        # The terminal's interrupts do not reach it.
        process_group=0,
    )


def _give_task_and_queue_answers(
    process: "subprocess.Popen[bytes]", task: bytes, answers: SimpleQueue[tuple[str, Answer] | None]
) -> None:
    with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
        if process.stdin is not None and process.stdout is not None:
            process.stdin.write(task)
            process.stdin.flush()
            while True:
                answers.put(pickle.load(process.stdout))  # noqa: S301 - our own process
    answers.put(None)


def work() -> None:
    """Do the task on stdin, in a worker process."""
    ask, hosts, concurrency = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent process
    in_background(_end_with_input, "input")
    for answer in ask_in_threads(hosts, ask, concurrency=concurrency):
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    # Joining all threads takes time.
    os._exit(0)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
