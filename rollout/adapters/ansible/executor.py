"""`HostExecutor` over Ansible: whatever way a team's inventory knows to its hosts, with `raw` alone.

Asking many hosts is one run of `probe.yml`; hosts that are attended are one run of `reboot.yml`, in which each takes
the turns that it is given here. Ansible carries commands and answers; nothing is decided in a playbook, so that a
reboot is asked for and proven by the same rules whatever carries the question.
"""

import math
import shutil
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from rollout.adapters.ansible.answers import Answer, HostAnswer, host_answer
from rollout.adapters.ansible.command_queue import CommandQueue
from rollout.adapters.ansible.inventory import is_reachable_by_name
from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, playbooks, require_ansible
from rollout.adapters.scratch import new_folder
from rollout.adapters.ssh.known_hosts import HostKeyChecking
from rollout.errors import SshError, SshUnreachableError
from rollout.gather.hosts.boot import parse_boot
from rollout.model.host import Host
from rollout.ports import CommandResult

# Each takes a process of 17 MB for as long as it is attended.
_MOST_ATTENDED = 200
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class AnsibleExecutor:
    """Runs commands on hosts by Ansible; safe to call from many threads. Raises `RolloutError` where it is missing."""

    def __init__(self, settings: AnsibleSettings) -> None:
        require_ansible()
        settings.check_configuration()
        self._settings = settings
        if settings.host_key_checking is HostKeyChecking.OFF:
            # Even unchecked keys have to stay the same for as long as this is there.
            folder = new_folder("Ansible")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._settings = replace(settings, seen_keys=folder / "known_hosts")
        self._lock = threading.Lock()
        self._attended: dict[str, CommandQueue] = {}

    def run(self, host: Host, command: str, *, timeout: float) -> CommandResult:
        """Where the host is attended its next turn, else a run of its own, which takes a second or two.

        Raises:
            SshUnreachableError: no connection, or one that broke: the command may have been carried out.
            SshTimeoutError: no answer within `timeout` seconds.
            SshAuthError: the host refuses user or key.
            HostKeyError: the host's key is unknown, or has changed.
            SshError: Ansible could not run the command.
        """
        with self._lock:
            queue = self._attended.get(host.name)
        if queue is not None:
            return queue.ask(host, command, timeout=timeout)
        with closing(self.run_on_all({host.name: host}, command, timeout=timeout, concurrency=1)) as answers:
            _name, answer = next(answers)
        if isinstance(answer, SshError):
            raise answer
        return answer

    def run_if(
        self, host: Host, question: str, agreed: Callable[[CommandResult], bool], command: str, *, timeout: float
    ) -> CommandResult | None:
        """Run `question` and, where `agreed` says so, `command`, which the host runs in the boot that has answered."""
        answer = self.run(host, question, timeout=timeout)
        boot = parse_boot(answer)
        if not agreed(answer) or boot is None:
            return None
        return self.run(host, _only_in(boot.boot_id, command), timeout=timeout)

    def run_on_all(
        self, hosts: Mapping[str, Host], command: str, *, timeout: float, concurrency: int
    ) -> Generator[tuple[str, Answer]]:
        """One run of `probe.yml` over all of them."""
        names = {host.name: name for name, host in hosts.items() if is_reachable_by_name(host)}
        for name, host in hosts.items():
            if host.name not in names:
                yield name, SshError(f"{host.name!r}: this name, address or user cannot be given to ssh")
        if names:
            reached = [hosts[name] for name in names.values()]
            for host_name, answer in self._asked(reached, command, timeout, concurrency):
                yield names[host_name], answer

    def _asked(self, hosts: list[Host], command: str, timeout: float, concurrency: int) -> Iterator[tuple[str, Answer]]:
        answers: SimpleQueue[HostAnswer | None] = SimpleQueue()
        left = {host.name for host in hosts}
        run = PlaybookRun(
            self._settings,
            playbooks() / "probe.yml",
            hosts,
            forks=min(concurrency, len(hosts)),
            listener=lambda event: _pass_on(event, answers),
            ended=lambda: answers.put(None),
        )
        try:
            run.begin({"rollout_question": command, "rollout_seconds": math.ceil(timeout)})
            while left and (answered := answers.get()) is not None:
                if answered.host in left:
                    left.remove(answered.host)
                    yield answered.host, answered.answer
            for name in sorted(left):
                yield name, SshUnreachableError(f"Ansible gave no answer: {run.last_output}")
        finally:
            run.end()

    @contextmanager
    def attending(self, hosts: Iterable[Host]) -> Iterator[None]:
        """One run of `reboot.yml` for all of them, begun at the first question; any beyond 200 are asked singly."""
        attended = [host for host in hosts if is_reachable_by_name(host)][:_MOST_ATTENDED]
        queue = CommandQueue(self._settings, attended)
        with self._lock:
            self._attended.update({host.name: queue for host in attended})
        try:
            yield
        finally:
            with self._lock:
                for host in attended:
                    self._attended.pop(host.name, None)
            queue.close()


def _pass_on(event: Mapping[str, Any], answers: "SimpleQueue[HostAnswer | None]") -> None:
    answer = host_answer(event)
    if answer is not None:
        answers.put(answer)


def _only_in(boot_id: str, command: str) -> str:
    """Return the command for this boot alone; `boot_id` is hexadecimal digits and dashes, as it was parsed."""
    return f"if [ \"$(cat {_BOOT_ID})\" = {boot_id} ]; then\n{command}\nelse echo 'this is another boot already'; fi"
