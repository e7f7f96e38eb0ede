"""The pipelines of docs/examples, step by step in a shell, as a runner would: their own lines, nothing typed again.

What a runner does by itself is done here: secrets, files that carry variables, artifacts, conditions. `pip` and `pipx`
find the package installed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SECRETS = ("CLUSTER_KUBECONFIG", "HOSTS_SSH_KEY", "HOSTS_KNOWN_HOSTS", "HOSTS_INVENTORY")
_EXPRESSION = re.compile(r"\$\{\{ ([\w.-]+) \}\}")
_EQUALITY = re.compile(r"([\w.-]+) == '(\w+)'")


def texts() -> dict[str, str]:
    """The files, by the name in their first line."""
    files = (path.read_text().split("\n", 1) for path in EXAMPLES.glob("*.yml"))
    return {head.removeprefix("# "): text for head, text in files}


def document(name: str) -> dict[str, Any]:
    """One of them."""
    loaded: dict[str, Any] = yaml.safe_load(texts()[name])
    return loaded


@dataclass(frozen=True, slots=True)
class Job:
    """A job that has ended: its exit status, 0 for success, and all that it printed; its summary is of GitHub's."""

    status: int
    log: str
    summary: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs jobs, each in a place of its own; `store` keeps what they hand on, `secrets` are texts by their names.

    `program` is the shell's line behind the command `rollout`.
    """

    place: Path
    secrets: Mapping[str, str]
    program: str = f'exec {sys.executable} -m rollout "$@"'

    @property
    def store(self) -> Path:
        """Artifacts."""
        return self.place / "artifacts"

    def environment(self) -> dict[str, str]:
        """A machine with the program installed, and nothing of ours."""
        programs = self.place / "programs"
        programs.mkdir(exist_ok=True)
        for name, line in (("pip", "true"), ("pipx", "true"), ("rollout", self.program)):
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.place), "LC_ALL": "C.UTF-8"}


def github_job(runner: Runner, name: str, needs: Mapping[str, str] = MappingProxyType({})) -> Job | None:
    """A job of the workflow; None where its condition does not hold. `needs` are outputs of the job that it needs."""
    job = document(".github/workflows/nodes.yml")["jobs"][name]
    known = {f"secrets.{key}": value for key, value in runner.secrets.items()}
    known |= {f"needs.{job.get('needs')}.outputs.{key}": value for key, value in needs.items()}
    if not _holds(job.get("if", ""), known, status=0):
        return None
    return _GithubJob(runner, name, known).run(job)


class _GithubJob:
    def __init__(self, runner: Runner, name: str, known: dict[str, str]) -> None:
        self._runner, self._known = runner, known
        self._work = runner.place / name
        self._files = {key: self._work / key for key in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        self._log = ""

    def run(self, job: Mapping[str, Any]) -> Job:
        (self._work / "temp").mkdir(parents=True)
        (self._work / "workspace").mkdir()
        for file in self._files.values():
            file.write_text("")
        status = 0
        for step in job["steps"]:
            if _holds(step.get("if", ""), self._known, status):
                status = self._step(step) or status
        outputs = {key: self._filled(value) for key, value in job.get("outputs", {}).items()}
        return Job(status, self._log, self._files["GITHUB_STEP_SUMMARY"].read_text(), outputs)

    def _step(self, step: Mapping[str, Any]) -> int:
        if "uses" in step:
            self._use(step["uses"].partition("@")[0], step.get("with", {}))
            return 0
        variables = {
            **self._runner.environment(),
            **{key: str(file) for key, file in self._files.items()},
            "RUNNER_TEMP": str(self._work / "temp"),
            **_assignments(self._files["GITHUB_ENV"]),
            **{key: self._filled(value) for key, value in step.get("env", {}).items()},
        }
        ended = _shell(["bash", "-e", "-c", step["run"]], variables, self._work / "workspace")
        self._log += ended.stdout
        for key, value in _assignments(self._files["GITHUB_OUTPUT"]).items():
            self._known[f"steps.{step.get('id')}.outputs.{key}"] = value
        return ended.returncode

    def _use(self, action: str, settings: Mapping[str, Any]) -> None:
        match action:
            case "actions/checkout":
                pass
            case "actions/upload-artifact":
                kept = self._runner.store / settings["name"]
                kept.mkdir(parents=True)
                shutil.copy(self._work / "workspace" / settings["path"], kept)
            case "actions/download-artifact":
                kept = self._runner.store / settings["name"]
                shutil.copytree(kept, self._work / "workspace", dirs_exist_ok=True)
            case _:
                raise ValueError(action)

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self._known.get(found[1], ""), text)


def gitlab_job(runner: Runner, name: str) -> Job:
    """A job of the pipeline: both scripts in one shell, what comes after in another; its artifacts are handed on."""
    pipeline = document(".gitlab-ci.yml")
    job = {**pipeline[pipeline[name]["extends"]], **pipeline[name]}
    work = runner.place / name
    work.mkdir()
    if runner.store.exists() and "needs" in job:
        shutil.copytree(runner.store, work, dirs_exist_ok=True)
    variables = {**runner.environment(), **_secret_files(runner), "CI_JOB_ID": name}
    for key, value in job["variables"].items():
        # its folder is of this test's alone
        variables[key] = value.replace("$CI_JOB_ID", name).replace("/tmp", str(runner.place))  # noqa: S108 - replaced
    ended = _shell(["bash", "-eo", "pipefail", "-c", "\n".join(job["before_script"] + job["script"])], variables, work)
    after = _shell(["bash", "-eo", "pipefail", "-c", "\n".join(job["after_script"])], variables, work)
    if ended.returncode == 0 or job.get("artifacts", {}).get("when") == "always":
        runner.store.mkdir(exist_ok=True)
        for path in filter(Path.exists, (work / path for path in job.get("artifacts", {}).get("paths", ()))):
            shutil.copy(path, runner.store)
    return Job(ended.returncode, ended.stdout + after.stdout)


def _secret_files(runner: Runner) -> dict[str, str]:
    """Variables of type File: paths, of files that everybody may read."""
    folder = runner.place / "variables"
    folder.mkdir(exist_ok=True)
    for name, text in runner.secrets.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    return {name: str(folder / name) for name in runner.secrets}


def _shell(command: list[str], variables: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )


def _holds(condition: str, known: Mapping[str, str], status: int) -> bool:
    """A condition of the page's kinds; a step without `always()` runs only while all is well."""
    if condition == "always()":
        return True
    equality = _EQUALITY.fullmatch(condition)
    if condition and not equality:
        raise ValueError(condition)
    return status == 0 and (equality is None or known.get(equality[1]) == equality[2])


def _assignments(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())
