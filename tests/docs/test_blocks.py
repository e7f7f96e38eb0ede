"""What the documents have their readers paste does what the page says: each block, run in a lab by the real program.

Blocks are pasted in their order, in one folder. A comment right before a block, which readers of
the page do not see, says what a test has to know of it:

* `<!-- not run: REASON -->`
* `<!-- run: NAME is worker-1; ends with 2 -->` puts in what the block leaves to its reader, and
  names the exit codes other than 0 with which its commands end, in their order.
"""

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rollout.cli.wiring import HURRIED_VARIABLE
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.docs.pages import DOCS, ROOT
from tests.ended import HURRIED

SHELLS = ("sh", "bash", "console")
_COMMENT = r"(?:^ *<!-- (?P<kind>not run|run): (?P<said>[^>]*?)\s-->\n)?"
_BLOCK = re.compile(
    rf"{_COMMENT}^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE
)
_TYPED = re.compile(r"^ *\$ (.*)", re.MULTILINE)
# After each command, whatever came of it, as at a terminal.
_TELL = 'echo "$?" >&{}'
_SECONDS = 100
# What the site shows of a block on a screen of 1400 pixels.
_COLUMNS = 80


class CommentError(Exception):
    """A comment before a block names what the block does not have."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is to be pasted, and what the comment before it says."""

    place: str
    language: str
    text: str
    not_run: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[int, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """Each with all of its lines; of a console's block only what is typed."""
        text = self.text
        for name, value in self.instead.items():
            if name not in text:
                raise CommentError(f"{self.place} has no {name}")
            text = text.replace(name, value)
        return tuple(_TYPED.findall(text) if self.language == "console" else _commands(text))

    @property
    def shown(self) -> tuple[str, ...]:
        """Of a console's block the lines that are shown as printed, without their figures."""
        lines = self.text.splitlines() if self.language == "console" else ()
        return tuple(shape(line) for line in lines if not _TYPED.match(line))


@dataclass(frozen=True, slots=True)
class Pasted:
    """What came of a block: its commands with their exit codes, and all that was printed."""

    ended: tuple[tuple[str, int], ...]
    printed: str

    @property
    def codes(self) -> tuple[int, ...]:
        """Those other than 0."""
        return tuple(code for _, code in self.ended if code)


def blocks(page: Path) -> Iterator[Block]:
    """Those for a shell, in the order of the page."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        place = f"{page.name}:{text.count(chr(10), 0, found.start('text'))}"
        said = " ".join((found["said"] or "").split())
        if found["language"] not in SHELLS:
            continue
        if found["kind"] == "not run":
            yield Block(place, found["language"], found["text"], not_run=said)
        else:
            yield _run(place, found["language"], found["text"], said)


def _run(place: str, language: str, text: str, said: str) -> Block:
    parts = [part for part in said.split("; ") if part]
    codes = [
        int(code)
        for part in parts
        if part.startswith("ends with ")
        for code in re.findall(r"\d+", part)
    ]
    instead = dict(part.split(" is ", 1) for part in parts if not part.startswith("ends with "))
    return Block(place, language, text, instead=instead, codes=tuple(codes))


def _commands(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        command = "\n".join(lines)
        if not command.endswith("\\") and _is_whole(command):
            if not command.isspace() and not command.lstrip().startswith("#"):
                yield command
            lines.clear()
    if lines:
        yield "\n".join(lines)


def _is_whole(command: str) -> bool:
    """Whether a shell would wait for no further line."""
    return (
        subprocess.run(["bash", "-nc", command], capture_output=True, check=False).returncode == 0
    )


def shape(line: str) -> str:
    """A line without what differs from one cluster, and one run, to the next."""
    return re.sub(r"\b(?:cp|worker)-N\b", "NODE", re.sub(r"\d[\d.:]*", "N", line.strip()))


def paste(block: Block, folder: Path, environment: Mapping[str, str]) -> Pasted:
    """Run it in a shell, at a terminal at which `yes` is typed to every question."""
    commands = block.commands
    reading, telling = os.pipe()
    ours, theirs = os.openpty()
    lines = [
        "set -o pipefail",
        *(line for command in commands for line in (command, _TELL.format(telling))),
    ]
    try:
        os.write(ours, b"yes\n" * len(commands))
        ended = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[telling],
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    finally:
        for number in (telling, ours, theirs):
            os.close(number)
    with os.fdopen(reading) as told:
        codes = [int(code) for code in told]
    return Pasted(tuple(zip(commands, codes, strict=True)), ended.stdout)


def path_with_program(programs: Path) -> str:
    """A PATH on which `rollout` is the program that is tested, beside Ansible and kubectl."""
    programs.mkdir()
    (programs / "rollout").write_text(f'#!/bin/sh\nexec {sys.executable} -m rollout "$@"\n')
    (programs / "rollout").chmod(0o755)
    return f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"


LAB = DOCS / "lab.md"
MOVING = DOCS / "moving.md"
# Of those two the lab's has a test below, the other one test_moving.py, which installs what is to
# be removed.
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
    if page not in (LAB, MOVING)
]
RUN = [page for page in PAGES if any(not block.not_run for block in blocks(page))]


@pytest.fixture
def variables(tmp_path: Path) -> Mapping[str, str]:
    """A shell of a reader's, who has the program installed and nothing else of ours."""
    home = tmp_path / "home"
    home.mkdir()
    own = {"PATH": path_with_program(tmp_path / "programs"), "HOME": str(home), "LC_ALL": "C.UTF-8"}
    # no connection is kept open after its command
    return {**own, HURRIED_VARIABLE: HURRIED, "ANSIBLE_SSH_ARGS": ""}


def furnish(folder: Path, lab: Lab) -> None:
    """What a reader has there: a clone's folders, an inventory, keys for ssh, what the hosts'
    consoles have shown.
    """
    (folder / ".ssh").mkdir()
    for name in ("inventory", "playbooks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "hosts.yaml").symlink_to(lab.inventory)
    consoles = folder / "consoles"
    consoles.mkdir()
    for name, line in zip(lab.machines, lab.known_hosts.read_text().splitlines(), strict=True):
        digest = hashlib.sha256(base64.b64decode(line.split()[2])).digest()
        fingerprint = base64.b64encode(digest).decode().rstrip("=")
        (consoles / f"{name}.log").write_text(f"SSH host key: SHA256:{fingerprint} (ED25519)\n")


def failing(block: Block, pasted: Pasted) -> str:
    """What is wrong of a block, with all that it printed; empty where nothing is."""
    printed = [shape(line) for line in pasted.printed.splitlines()]
    missing = [line for line in block.shown if line not in printed]
    if pasted.codes == block.codes and not missing:
        return ""
    ended = "\n".join(f"{code}: {command}" for command, code in pasted.ended)
    return (
        f"{block.place} should end with {block.codes or 0}, and print"
        f" {missing}\n{ended}\n\n{pasted.printed}"
    )


@pytest.mark.sample
@pytest.mark.kubectl
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_each_block_of_a_page_does_what_it_is_there_for(
    page: Path, start_lab: StartLab, variables: Mapping[str, str]
) -> None:
    if "| jq " in page.read_text(encoding="utf-8") and not shutil.which("jq"):
        pytest.skip("needs jq")
    lab = start_lab("default", nodes=4, speed=240)
    folder = Path(variables["HOME"])
    furnish(folder, lab)
    for block in blocks(page):
        if not block.not_run:
            wrong = failing(block, paste(block, folder, {**lab.environment, **variables}))
            assert not wrong, wrong
    assert lab.scoreboard().clean


@pytest.mark.exhaustive
@pytest.mark.kubectl
def test_the_lab_of_its_page_is_one_to_rehearse_on(variables: Mapping[str, str]) -> None:
    """Started by the page's own line; in another terminal the lines that the lab itself prints are
    the page's.
    """
    folder = Path(variables["HOME"])
    start, typed, *_ = blocks(LAB)
    up, *others = start.commands
    with subprocess.Popen(
        ["bash", "-c", f"exec {up}"],
        cwd=folder,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as lab:
        assert lab.stdout is not None
        said: list[str] = []
        while not said or not said[-1].startswith("Hosts answer SSH"):
            said.append(lab.stdout.readline())
            assert said[-1], said
        printed = [line.strip().replace(f"{folder}/", "") for line in said]
        assert [line for line in typed.commands if line not in printed] == []
        wrong = failing(typed, paste(typed, folder, variables))
        assert not wrong, wrong
        lab.send_signal(signal.SIGINT)
        ending = lab.stdout.read()
    assert lab.returncode == 0, ending
    assert "4 of 4" in ending
    (scenarios,) = others
    listed = paste(Block(start.place, "sh", scenarios), folder, variables)
    assert not listed.codes
    assert "never-returns" in listed.printed


def lines_of(page: Path) -> set[str]:
    """All commands of a page that are run."""
    return {command for block in blocks(page) if not block.not_run for command in block.commands}


def test_what_is_not_run_says_why() -> None:
    every = [block for page in (*PAGES, LAB) for block in blocks(page)]
    left = [block for block in every if block.not_run]
    assert {line for block in blocks(DOCS / "index.md") for line in block.commands} <= lines_of(
        ROOT / "README.md"
    )
    assert all(len(block.not_run.split()) > 3 for block in left)
    assert len(every) - len(left) > 20
    assert len(left) < 12


def too_long(block: Block) -> list[str]:
    """Its lines that do not fit, of a console's block only what is typed."""
    lines = block.text.splitlines() if block.language != "console" else block.commands
    # one line to paste, which CI finds by how it begins
    return [
        line for line in lines if len(line) > _COLUMNS and not line.startswith("python3 -m venv ")
    ]


def with_late_comment(block: Block) -> list[str]:
    """Its lines with a comment after a command, where a phone does not show it."""
    return [line for line in block.text.splitlines() if re.search(r"\S +# ", line)]


@pytest.mark.parametrize("page", [*PAGES, LAB, MOVING], ids=lambda page: page.name)
def test_a_block_fits_the_page(page: Path) -> None:
    for block in blocks(page):
        assert not too_long(block), block.place
        if block.language != "console":
            assert not with_late_comment(block), block.place


def test_a_comment_names_only_what_its_block_has(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "<!-- run: NODE is worker-1 -->\n```sh\nrollout status --node NAME\n```\n"
    )
    (block,) = blocks(tmp_path / "page.md")
    with pytest.raises(CommentError, match="has no NODE"):
        _ = block.commands
