"""A plain install goes without the lab's libraries and without test tools, and does all of the program's work.

The real program runs with everything hidden from it that a plain install does not bring.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.conftest import TINY, Command
from tests.conftest import StartLab
from tests.scripted_api import scripted

PACKAGE = "node-rollout"
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
# Python imports it at its start, before anything else
HIDING = """
import sys

HIDDEN = frozenset({hidden})


class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, Absent)
"""


def brought(package: str) -> Iterator[str]:
    """The packages that this one wants, without any extra."""
    for line in metadata.requires(package) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def plain_install() -> set[str]:
    """Every package that `pip install node-rollout` leaves in an empty environment."""
    packages = {PACKAGE}
    asked = [PACKAGE]
    while asked:
        further = set(brought(asked.pop())) - packages
        packages |= further
        asked += further
    return packages


def hidden_modules() -> list[str]:
    """What can be imported here and could not be with a plain install."""
    plain = plain_install()
    modules = metadata.packages_distributions().items()
    return sorted(
        name for name, packages in modules if not plain & set(map(canonicalize_name, packages))
    )


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, str]:
    """The environment of a program that finds no more than a plain install brings."""
    folder = tmp_path / "plain"
    folder.mkdir()
    hidden = hidden_modules()
    assert {"asyncssh", "pytest", "hypothesis", "mypy"} <= set(hidden)
    (folder / "sitecustomize.py").write_text(HIDING.format(hidden=json.dumps(hidden)))
    return {"PYTHONPATH": str(folder)}


@pytest.mark.sample
@pytest.mark.parametrize("words", [("demo",), ("lab", "up")])
def test_without_the_extra_the_simulation_names_the_line_that_installs_it(
    words: tuple[str, ...], command: Command, plain: dict[str, str]
) -> None:
    ended = command(*words, variables=plain).ends(1)
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        (
            "rollout: error: the simulated cluster needs libraries that are not installed: No"
            " module named 'asyncssh'"
        ),
        f"hint: {sys.executable} -m pip install 'aiohttp>=3.10' 'asyncssh>=2.18'",
    ]


def test_a_plain_install_carries_out_a_rollout(
    start_lab: StartLab, command: Command, plain: dict[str, str]
) -> None:
    lab = start_lab(TINY)
    with scripted(lambda exchange: exchange.answer(200, b"")) as endpoint:
        # plain webhooks need no extra
        variables = {**plain, "ROLLOUT_NOTIFY": endpoint.url}
        ended = command("apply", "--yes", "-o", "json", lab=lab, variables=variables)
        assert len(endpoint.exchanges) >= 2
    assert (ended.code, len(ended.summary["succeeded"])) == (0, 3), ended


def test_a_plain_install_runs_ansible(
    start_lab: StartLab, command: Command, plain: dict[str, str]
) -> None:
    lab = start_lab(TINY)
    ended = command("status", "--executor", "ansible", "-o", "json", lab=lab, variables=plain).ends(
        0
    )
    assert [node["error"] for node in json.loads(ended.stdout)["nodes"]] == [""] * 3


@pytest.mark.kubectl
@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("plan", "--help"), 0, "Usage: kubectl node-rollout plan [OPTIONS] [FILE|NODE]..."),
        (("plann",), 64, "hint: See 'kubectl node-rollout --help' for usage."),
        (
            ("--help",),
            0,
            "Without a cluster:  kubectl node-rollout demo          watch a simulated rollout",
        ),
        (
            ("apply",),
            3,
            "kubectl node-rollout: error: there is no terminal to ask for confirmation",
        ),
        (
            ("apply",),
            3,
            "hint: Use --yes, or a plan saved with `kubectl node-rollout plan --out FILE`.",
        ),
        (("--version",), 0, f"kubectl node-rollout {PROJECT['project']['version']}"),
    ],
)
def test_kubectl_has_it_as_a_plugin_that_goes_by_that_name(
    words: tuple[str, ...], code: int, line: str, tmp_path: Path
) -> None:
    """Installed as pip writes the scripts of a package."""
    name = "kubectl-node_rollout"
    module, _, function = PROJECT["project"]["scripts"][name].partition(":")
    (tmp_path / name).write_text(
        f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n"
    )
    (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ended = subprocess.run(
        ["kubectl", "node-rollout", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == code
    assert line in [said.strip() for said in (ended.stdout + ended.stderr).splitlines()]
