"""What the real program prints for programs is what its published schemas say, on a cluster where
much goes wrong.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rollout.errors import ScenarioError
from rollout.lab.hostplan import plan_hosts, scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario
from rollout.lab.scenarios import scenario_names
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import invoked
from tests.published import assert_journal, assert_published, published
from tests.scenario_runs import run_words

pytestmark = pytest.mark.slow  # the output of a lab
# Of each scenario a part is enough that has all the hosts which it names.
FEW = 6
# All that can be tried is tried, and nothing is waited for long.
PATIENCE = (
    *("--set", "ssh.probe-timeout=3s", "--drain-timeout", "3s", "--reboot-timeout", "10s"),
    *("--ready-timeout", "5s", "--settle-timeout", "2s", "--max-unavailable", "50%"),
    *("--max-failures", "100%", "--allow", "blocked", "--force"),
)
# Its user may not begin one; none of its hosts has an update.
WITHOUT_A_RUN = {"no-rights", "behind"}


def check(name: str, document: Any) -> None:
    """As a program would that has read the schema: fields may have been added."""
    errors = [
        error.message for error in Draft202012Validator(published(name)).iter_errors(document)
    ]
    assert errors == []
    assert_published(name, document)


def by_node(lines: Sequence[bytes]) -> list[bytes]:
    """The events of each node in their order: what happens to two of them in one moment has none."""
    return sorted(lines, key=lambda line: str(json.loads(line).get("node")))


def part_of(scenario: Scenario) -> Scenario:
    """Control plane and workers, and every fault there is among its hosts; all of it where hosts
    are missing else.
    """
    part = scale(scenario, FEW)
    try:
        plan_hosts(part)
    except ScenarioError:
        return scenario
    return part


@pytest.mark.sample
@pytest.mark.parametrize("name", scenario_names())
def test_every_command_on_every_scenario(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    with Lab(part_of(scenario), directory=tmp_path / "lab", speed=120) as lab:

        def lines_of(*words: str) -> list[bytes]:
            ended = invoked(tmp_path, lab.environment, (*words, "-o", "json"))
            assert ended.stdout or name in WITHOUT_A_RUN, ended.stderr
            return ended.stdout.encode().splitlines()

        def check_whole(schema: str, *words: str) -> None:
            check(schema, json.loads(b"".join(lines_of(*words))))

        for word in ("status", "plan", "doctor"):
            check_whole(word, word, "--set", "ssh.probe-timeout=3s")
        lines = lines_of(*run_words(scenario), "--yes", *PATIENCE)
        for line in lines:
            check("apply", json.loads(line))
        check_whole("history", "history")
        check_whole("status-run", "status", "--run")
        journals = list((tmp_path / ".local" / "state" / "rollout" / "runs").glob("*.jsonl"))
        assert len(journals) == (name not in WITHOUT_A_RUN)
        for journal in journals:
            assert_journal(journal)
            assert by_node(journal.read_bytes().splitlines()[1:]) == by_node(lines[1:])
            check_whole("report", "report")


def test_a_field_that_is_missing_or_of_another_type_is_refused() -> None:
    notice = {"type": "notice", "at": "2026-03-04T05:06:07Z", "message": "a sentence"}
    check("apply", notice)
    lines = Draft202012Validator(published("apply"))
    assert not lines.is_valid({**notice, "message": 1})
    assert not lines.is_valid({"type": "notice", "at": "2026-03-04T05:06:07Z"})
    assert lines.is_valid({**notice, "added": "by a later version"})


def test_the_journal_of_a_run_has_the_lines_that_it_prints(
    start_lab: StartLab, command: Command
) -> None:
    """In their order, to the letter; but for the first of each, which says what the rest is."""
    lab = start_lab("rollback", nodes=6, speed=120)
    words = (
        *("apply", "--yes", "--max-failures", "3", "--set", "output.journal=run.jsonl"),
        *("-o", "json"),
    )
    ended = command(*words, lab=lab)
    journal = lab.directory.parent / "home" / "run.jsonl"
    assert_journal(journal)
    first, *records = journal.read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["type"] == "run"
    version, *lines = ended.stdout.splitlines()
    assert json.loads(version)["type"] == "version"
    assert records == lines
