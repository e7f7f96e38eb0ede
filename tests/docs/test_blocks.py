"""What the documents have their readers paste does what the page says: each block, run in a lab by the real program.

`tests/docs/blocks.py` says how a page marks what is not run, and what a reader puts in.
"""

import base64
import hashlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rollout.cli.wiring import HURRIED_VARIABLE
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.docs.blocks import Block, CommentError, Pasted, blocks, paste, path_with_program, shape
from tests.docs.pages import DOCS, ROOT
from tests.ended import HURRIED

LAB, MOVING = DOCS / "lab.md", DOCS / "moving.md"
# Of those two the lab's has a test below, the other one test_moving_steps.py, which installs what is to be removed.
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
    """What a reader has there: a clone's folders, an inventory, keys for ssh, what the hosts' consoles have shown."""
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
    return f"{block.place} should end with {block.codes or 0}, and print {missing}\n{ended}\n\n{pasted.printed}"


@pytest.mark.sample(3)
@pytest.mark.kubectl
@pytest.mark.timeout(200)
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_each_block_of_a_page_does_what_it_is_there_for(
    page: Path, start_lab: StartLab, variables: Mapping[str, str]
) -> None:
    if "| jq " in page.read_text(encoding="utf-8") and not shutil.which("jq"):
        pytest.skip("needs jq")
    lab, folder = start_lab("default", nodes=4, speed=60), Path(variables["HOME"])
    furnish(folder, lab)
    for block in blocks(page):
        if not block.not_run:
            wrong = failing(block, paste(block, folder, {**lab.environment, **variables}))
            assert not wrong, wrong
    assert lab.scoreboard().clean


@pytest.mark.exhaustive
@pytest.mark.kubectl
@pytest.mark.timeout(200)
def test_the_lab_of_its_page_is_one_to_rehearse_on(variables: Mapping[str, str]) -> None:
    """Started by the page's own line; in another terminal the lines that the lab itself prints are the page's."""
    folder, (start, typed, *_) = Path(variables["HOME"]), blocks(LAB)
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
        while not said or not said[-1].startswith("Addresses and ports"):
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
    assert {line for block in blocks(DOCS / "index.md") for line in block.commands} <= lines_of(ROOT / "README.md")
    assert all(len(block.not_run.split()) > 3 for block in left)
    assert len(every) - len(left) > 20
    assert len(left) < 12


def test_a_comment_names_only_what_its_block_has(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- run: NODE is worker-1 -->\n```sh\nrollout status --node NAME\n```\n")
    (block,) = blocks(tmp_path / "page.md")
    with pytest.raises(CommentError, match="has no NODE"):
        _ = block.commands
