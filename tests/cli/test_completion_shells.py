"""Completion in the shells themselves, on a terminal: a line is typed, the tab key pressed, and the line run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.cli.shells import COMMANDS, Shell, shell
from tests.cli.test_completion import PATIENT
from tests.conftest import StartLab

pytestmark = pytest.mark.exhaustive

LOADS = {
    "bash": "source <(rollout completion bash)",
    "zsh": "source <(rollout completion zsh)",
    "fish": "rollout completion fish | source",
}
OF_FPATH = "mkdir own; rollout completion zsh > own/_rollout; fpath=(~/own $fpath); compinit -u -D"
ARN = "arn:aws:eks:eu-west-1:1:cluster"
CONTEXTS = f"""
contexts: [{{name: '{ARN}/prod'}}, {{name: '{ARN}/dev'}}, {{name: 'my own'}}]
clusters: []
"""
LINES = [
    ("sta\t", "status"),
    ("plan --strat\tro\t", "plan --strategy rolling"),
    ("fleetlock zin\t", "fleetlock zincati"),
    ("apply pl\tw\t", "apply plans/web.plan"),
    ("plan --ssh-key id\t", "plan --ssh-key id_ed25519"),
    ("plan --kubeconfig two --context arn\tp\t", f"plan --kubeconfig two --context {ARN}/prod"),
    (f"plan --kubeconfig two --context {ARN}/d\t", f"plan --kubeconfig two --context {ARN}/dev"),
]
# what fish and zsh cannot, by the scripts that typer has for them
OF_BASH = [
    (f"plan --kubeconfig=two --context={ARN}/p\t", f"plan --kubeconfig=two --context={ARN}/prod"),
    ("pause worker-3 --reason 'two words' worker-2\t", "pause worker-3 --reason two words worker-2"),
]


def installed(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(COMMANDS[kind][0]), reason=f"{kind} is not installed")


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=4)


@pytest.fixture
def lived_in(home: Path) -> Path:
    (home / "plans").mkdir()
    (home / "plans" / "web.plan").write_text('{"plan_id": "x"}')
    (home / "plans" / "web.txt").write_text("no plan")
    (home / "id_ed25519").touch()
    (home / "two").write_text(CONTEXTS)
    return home


@pytest.fixture(params=[pytest.param(kind, marks=installed(kind)) for kind in LOADS])
def opened(request: pytest.FixtureRequest, lived_in: Path, lab: Lab) -> Iterator[Shell]:
    with shell(request.param, lived_in, {**lab.environment, **PATIENT}, LOADS[request.param]) as opened:
        yield opened


def test_a_line_is_completed(opened: Shell) -> None:
    for typed, meant in (*LINES, ("status --node wor\t2\t", "status --node worker-2")):
        assert " ".join(opened.words(f"rollout {typed}")) == meant


def test_bash_completes_words_that_it_parts_itself(lived_in: Path, lab: Lab) -> None:
    with shell("bash", lived_in, {**lab.environment, **PATIENT}, LOADS["bash"]) as bash:
        for typed, meant in OF_BASH:
            assert " ".join(bash.words(f"rollout {typed}")) == meant
        own = ["plan", "--kubeconfig", "two", "--context", "my own"]
        assert bash.words("rollout plan --kubeconfig two --context my\t") == own


@installed("zsh")
def test_zsh_completes_at_the_first_key_where_it_loads_the_script_by_its_name(lived_in: Path, lab: Lab) -> None:
    with shell("zsh", lived_in, {**lab.environment, **PATIENT}, OF_FPATH) as zsh:
        assert zsh.words("rollout sta\t") == ["status"]
