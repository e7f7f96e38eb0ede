"""Runs playbooks through ansible-runner.

A run's folder may hold secrets, so it is private and removed.
"""

import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rollout.adapters.ansible.inventory import TARGETS, write_inventory, write_variables
from rollout.adapters.ansible.settings import AnsibleSettings, check_playbook, find_programs
from rollout.adapters.input_trust import hint_of
from rollout.adapters.local_files import needing_temporary_folder
from rollout.errors import InputError
from rollout.execution.base.gate_ports import Occasion
from rollout.model.host import Host
from rollout.model.text import excerpt
from rollout.model.tool_output import last_line

Listener = Callable[[Mapping[str, Any]], None]

_POLL_SECONDS: Final = 1
_CANCEL_SECONDS: Final = 15.0
_LAST_LINES: Final = 12
_ERROR_STARTS = ("[ERROR]", "ERROR!", "fatal:")

_CHECK_SECONDS: Final = 0.5
_LONGEST_FAILURE: Final = 300
_LONGEST_OUTPUT: Final = 400
# For `python -c`, with PARENT PROGRAM [ARGUMENT]…: on Linux, the kernel kills the program with its
# parent. PARENT is compared, because process 1 may be a container's.
_TIED_TO_PARENT: Final = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_FAILURE_EVENTS: Final = ("runner_on_failed", "runner_item_on_failed", "runner_on_unreachable")


class PlaybookRun:
    """A run of a playbook in its own thread, which calls `listener` and `on_end`."""

    def __init__(
        self,
        settings: AnsibleSettings,
        playbook: Path,
        hosts: Sequence[Host],
        *,
        forks: int,
        listener: Listener,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        with needing_temporary_folder("Ansible"):
            self.folder = Path(tempfile.mkdtemp(prefix="rollout-"))
        # The exit status; None before the end, or without a start.
        self.status: int | None = None
        self._settings = settings
        self._playbook = playbook
        self._hosts = hosts
        self._forks = max(1, forks)
        self._listener = listener
        self._on_end = on_end
        self._arguments = ""
        self._canceled = threading.Event()
        self._output: deque[str] = deque(maxlen=_LAST_LINES)
        self._thread = threading.Thread(target=self._run_playbook, name="ansible", daemon=True)

    def start(self, variables: Mapping[str, object]) -> None:
        """Start the run; if this raises, `cancel` it."""
        inventory = write_inventory(self.folder, self._settings, self._hosts)
        file = write_variables(self.folder, variables)
        words = ["-i", str(inventory), "--limit", TARGETS, "-e", f"@{file}"]
        words += ["--forks", str(self._forks)]
        if self._settings.inventory:
            # Ours only selects hosts of the user's.
            words = ["-i", str(self._settings.inventory.absolute()), *words]
        self._arguments = shlex.join(words)
        self._thread.start()

    def cancel(self) -> None:
        """Cancel the run and wait for its end."""
        self._canceled.set()
        has_started = self._thread.ident is not None
        if not has_started:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self._thread.join(_CANCEL_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Return whether the run ended in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def last_output(self) -> str:
        """Return Ansible's last output outside of tasks: why a run failed."""
        lines = list(self._output)
        for number, line in enumerate(lines):
            if line.startswith(_ERROR_STARTS):
                # The last line alone would only quote the task.
                return excerpt(" ".join(lines[number:]), _LONGEST_OUTPUT)
        return last_line("\n".join(lines), _LONGEST_OUTPUT) or f"exit status {self.status}"

    def _run_playbook(self) -> None:
        import ansible_runner  # noqa: PLC0415 - loaded by those alone who run through it

        private = self.folder / "run"
        try:
            private.mkdir()
            ssh_config = self._settings.ssh_config_text()
            (self.folder / "ssh_config").write_text(ssh_config, encoding="utf-8")
            self._write_tied_ansible_playbook()
            ended = ansible_runner.run(
                private_data_dir=str(private),
                project_dir=str(self._settings.folder),
                playbook=str(self._playbook),
                cmdline=self._arguments,
                envvars=self._settings.variables(self.folder),
                settings={"pexpect_timeout": _POLL_SECONDS, "suppress_output_file": True},
                event_handler=self._on_event,
                cancel_callback=self._canceled.is_set,
                status_handler=self._on_status,
                quiet=True,
            )
            self.status = ended.rc
        except Exception as error:  # noqa: BLE001 - a thread that waits for the end must get it
            self._output.append(f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._on_end()

    def _write_tied_ansible_playbook(self) -> None:
        """Shadow `ansible-playbook` by a script that ends with this process.

        Under ansible-runner, Ansible would survive a killed rollout.
        """
        folder = self.folder / "bin"
        folder.mkdir()
        python = (sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT)
        command = (*python, str(os.getpid()), str(find_programs() / "ansible-playbook"))
        program = folder / "ansible-playbook"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        program.chmod(0o700)

    def _on_status(self, status: Mapping[str, Any], runner_config: Any) -> None:
        """Remove files that show the environment."""
        if status.get("status") == "running":
            shutil.rmtree(self.folder / "run" / "env", ignore_errors=True)
            Path(runner_config.artifact_dir, "command").unlink(missing_ok=True)

    def _on_event(self, event: Mapping[str, Any]) -> bool:
        """Return False, so that ansible-runner does not keep the event."""
        output = event.get("stdout", "").strip()
        if output and event.get("event") in ("verbose", "error", "warning"):
            self._output.append(output)
        self._listener(event)
        return False


_SETTINGS = {
    Occasion.PRE_REBOOT: "reboot.pre-playbook",
    Occasion.POST_REBOOT: "reboot.post-playbook",
}


class AnsiblePlaybooks:
    """Runs the operator's playbooks."""

    def __init__(self, settings: AnsibleSettings, files: Mapping[Occasion, Path]) -> None:
        """Raise `InputError` for an unsafe file, `RolloutError` without Ansible."""
        settings.check_configuration()
        for occasion, file in files.items():
            if not file.is_file():
                message = f"{_SETTINGS[occasion]} {file}: no such file"
                raise InputError(message, hint="Paths are relative to the current directory.")
            try:
                check_playbook(file)
            except OSError as error:
                message = f"cannot run the playbook {file}: {error.strerror}"
                raise InputError(message, hint=hint_of(error)) from error
        self._settings = settings
        self._files = files

    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        timeout: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Run the playbook, if any; return why it failed, or empty."""
        file = self._files.get(occasion)
        if file is None:
            return ""
        failures = list[str]()
        listener = _make_task_listener(notice, failures)
        run = PlaybookRun(self._settings, file.absolute(), [host], forks=1, listener=listener)
        try:
            try:
                run.start(variables)
            except OSError as error:
                return f"the files for Ansible cannot be written: {error.strerror}"
            deadline = time.monotonic() + timeout
            while not run.wait(_CHECK_SECONDS):
                check()
                if time.monotonic() >= deadline:
                    return f"it did not finish within gates.hook-timeout {timeout:g}s"
        finally:
            run.cancel()
        # Also if a failure was rescued, or no host matched.
        if run.status == 0:
            return ""
        return failures[0] if failures else run.last_output


def _make_task_listener(notice: Callable[[str], None], failures: list[str]) -> Listener:
    def note_event(event: Mapping[str, Any]) -> None:
        data = event.get("event_data") or {}
        task = excerpt(str(data.get("task") or ""))
        if task and event.get("event") == "playbook_on_task_start":
            notice(task)
        is_failure = event.get("event") in _FAILURE_EVENTS
        if is_failure and not data.get("ignore_errors"):
            reason = _why_task_failed(data.get("res") or {})
            failures.append(f"task {task!r}: {excerpt(reason, _LONGEST_FAILURE)}")

    return note_event


def _why_task_failed(result: Mapping[str, Any]) -> str:
    reason = str(result.get("msg") or result.get("stderr") or "no reason given")
    false_condition = result.get("assertion")
    return f"{reason}: {false_condition}" if false_condition else reason
