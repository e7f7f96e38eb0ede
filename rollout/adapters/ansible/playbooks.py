"""The operator's playbooks, each run on one host: their own plays, roles and variables, so a run of Ansible each."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rollout.adapters.ansible.playbook_run import PlaybookRun
from rollout.adapters.ansible.settings import AnsibleSettings, require_ansible
from rollout.errors import InputError
from rollout.execution.gates.playbooks import Occasion
from rollout.model.host import Host
from rollout.model.text import excerpt

_TICK: Final = 0.5
_LONGEST: Final = 300
_FAILED: Final = ("runner_on_failed", "runner_item_on_failed", "runner_on_unreachable")


class AnsiblePlaybooks:
    """Runs the playbook of an occasion; `InputError` where a file is not there, `RolloutError` without Ansible."""

    def __init__(self, settings: AnsibleSettings, files: Mapping[Occasion, Path]) -> None:
        require_ansible()
        settings.check_configuration()
        for occasion, file in files.items():
            if not file.is_file():
                key = f"reboot.{occasion.removesuffix('-reboot')}-playbook"
                raise InputError(f"{key} {file}: no such file", hint="Paths are those of the current folder.")
        self._settings = settings
        self._files = files

    def run(
        self,
        occasion: Occasion,
        host: Host,
        variables: Mapping[str, object],
        *,
        seconds: float,
        check: Callable[[], None],
        notice: Callable[[str], None],
    ) -> str:
        """Why it failed; empty where it passed, or there is none."""
        file = self._files.get(occasion)
        if file is None:
            return ""
        heard = _Heard(notice)
        run = PlaybookRun(self._settings, file.absolute(), [host], forks=1, listener=heard)
        try:
            run.begin(variables)
            end = time.monotonic() + seconds
            while not run.wait(_TICK):
                check()
                if time.monotonic() >= end:
                    return f"it did not end within gates.hook-timeout {seconds:g}s"
        finally:
            run.end()
        if run.status == 0:
            # A play that names no host of this one passes as well: nothing was asked of it.
            return ""
        return heard.failure or run.last_output


class _Heard:
    """Passes the names of tasks on, and keeps the first failure that Ansible did not ignore."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self.failure = ""

    def __call__(self, event: Mapping[str, Any]) -> None:
        data = event.get("event_data") or {}
        task = excerpt(str(data.get("task") or ""))
        if event.get("event") == "playbook_on_task_start" and task:
            self._notice(task)
        if event.get("event") in _FAILED and not data.get("ignore_errors") and not self.failure:
            result = data.get("res") or {}
            words = (result.get("msg") or result.get("stderr") or "no reason given", result.get("assertion"))
            self.failure = f"task {task!r}: {excerpt(': '.join(str(word) for word in words if word), _LONGEST)}"
