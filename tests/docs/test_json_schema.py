"""What the real program prints for programs is what its published schemas say, on a cluster where much goes wrong."""

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.docs.pages import SCHEMAS

pytestmark = pytest.mark.slow  # the output of a lab


@cache
def validator(command: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(command: str, document: Any) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in validator(command).iter_errors(document)]
    assert errors == []


def test_status(start_lab: StartLab, command: Command) -> None:
    rows = json.loads(command("status", "-o", "json", lab=start_lab("mixed")).stdout)
    check("status", rows)
    assert {row["reason"] == "" for row in rows} == {True, False}


def test_plan_with_blockers_warnings_and_exclusions(start_lab: StartLab, command: Command) -> None:
    gates = ("--window", "sat 02:00 4h", "--ramp", "1,50%", "--soak", "1m", "--grace-period", "5")
    plan = json.loads(command("plan", *gates, "-o", "json", lab=start_lab("forecast")).stdout)
    check("plan", plan)
    assert all(plan[name] for name in ("waves", "blockers", "warnings"))


def test_the_lines_of_a_run_in_which_a_node_fails_and_of_its_history(start_lab: StartLab, command: Command) -> None:
    lab = start_lab("rollback", nodes=6, speed=40)
    limits = ("--max-unavailable", "2", "--max-failures", "2")
    dry = command("apply", "--dry-run", *limits, "-o", "json", lab=lab)
    ended = command("apply", "--yes", *limits, "-o", "json", lab=lab)
    assert ended.code == ExitCode.PARTIAL
    for line in (*dry.lines, *ended.lines):
        check("apply", line)
    types = {line["type"] for line in (*dry.lines, *ended.lines)}
    assert {"version", "plan", "wave_started", "step", "node_finished", "dry_run", "summary"} <= types
    assert ended.summary["failed"]
    runs = json.loads(command("history", "-o", "json").stdout)
    check("history", runs)
    check("history", json.loads(command("history", runs[0]["run"], "-o", "json").stdout))
    report = json.loads(command("report", "--format", "json").stdout)
    check("report", report)
    assert all(report[name] for name in ("commands", "parts", "waves", "nodes", "failures"))


def test_doctor(start_lab: StartLab, command: Command) -> None:
    report = json.loads(command("doctor", "-o", "json", lab=start_lab("no-sudo", nodes=5)).stdout)
    check("doctor", report)
    assert not report["ok"]


@pytest.mark.parametrize("command_name", ["status", "plan", "apply", "doctor", "history", "report", "notification"])
def test_a_schema_refuses_what_is_something_else(command_name: str) -> None:
    """Else it would hold nothing."""
    assert not validator(command_name).is_valid({"type": "nonsense"})
    assert not validator(command_name).is_valid([{"node": 1}])


def test_a_field_that_is_missing_or_of_another_type_is_refused() -> None:
    notice = {"type": "notice", "at": "2026-03-04T05:06:07Z", "message": "a sentence"}
    check("apply", notice)
    assert not validator("apply").is_valid({**notice, "message": 1})
    assert not validator("apply").is_valid({"type": "notice", "at": "2026-03-04T05:06:07Z"})
