"""Nothing of this project is on a package index, where its names are free for anybody: no text installs it from one.

Once a release is published this file goes.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

INSTALL = re.compile(
    r"\b(?:pip3?|pipx|uv pip|uv"
    r" tool|krew|brew|conda)(?:\s+-\S+)*\s+(?P<verb>install|inject|run|add|download)\s+"
    r"(?P<rest>[^\n`;&|#)]*)"
    r"|\buvx\s+(?P<program>[^\n`;&|#)]*)"
)
OURS = re.compile(
    r"(?:kubectl-)?(?:node[-_.]?rollout|rollout)(?:\[[^\]]*\])?(?:[=<>~!@;\s].*)?", re.IGNORECASE
)
WITHOUT_INDEX = "--no-index"


def installed_from_an_index(text: str) -> list[str]:
    """The words of a text that would have our package installed from an index."""
    found = []
    # a command goes on after a backslash
    for match in INSTALL.finditer(text.replace("\\\n", " ")):
        words = [word.strip("\"'.,:") for word in (match["rest"] or match["program"] or "").split()]
        if match["verb"] == "inject":
            # the first word names an environment of this machine
            words = words[1:]
        if WITHOUT_INDEX not in words:
            found += [word for word in words if OURS.fullmatch(word)]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'node-rollout[lab]'",
        "hint: {sys.executable} -m pip install 'node-rollout[notify]'",
        "run: pipx install node-rollout==0.1.0",
        "pip install --quiet rollout",
        "uv tool install node-rollout",
        "uvx node-rollout status",
        "kubectl krew install node-rollout",
        "pipx inject ansible node_rollout",
        "pip install -q \\\n  node-rollout",
    ],
)
def test_an_install_from_an_index_is_found(line: str) -> None:
    assert len(installed_from_an_index(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "pipx install '.[lab]'",
        "pipx inject node-rollout PySocks",
        "kubectl krew install --manifest=node-rollout.yaml",
        "pip install --no-index --find-links wheels node-rollout",
        "pipx install dist/node_rollout-0.1.0-py3-none-any.whl",
    ],
)
def test_other_installs_are_left_alone(line: str) -> None:
    assert installed_from_an_index(line) == []


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    ).stdout
    names = (
        listed.split("\0") if listed else [str(file.relative_to(ROOT)) for file in ROOT.rglob("*")]
    )
    # The site and its cache are made of these pages.
    skipped = ("tests/", ".venv/", "site/", ".cache/", ".git/")
    return [
        ROOT / name
        for name in names
        if name and not name.startswith(skipped) and (ROOT / name).is_file()
    ]


def test_nothing_installs_this_program_from_an_index() -> None:
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in tracked()}
    assert ROOT / "rollout" / "lab" / "__init__.py" in texts
    found = {
        str(file.relative_to(ROOT)): words
        for file, text in texts.items()
        if (words := installed_from_an_index(text))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("file", "extra"),
    [
        ("rollout/adapters/notify.py", "notify"),
        ("rollout/cli/stages/fleetlock.py", "fleetlock"),
        ("rollout/lab/__init__.py", "lab"),
    ],
)
def test_the_hint_for_an_extra_names_what_the_extra_brings(file: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = " ".join(f"'{requirement}'" for requirement in project["optional-dependencies"][extra])
    assert f"-m pip install {wanted}" in (ROOT / file).read_text(encoding="utf-8")
