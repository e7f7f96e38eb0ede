"""A pod's log outlives its files: what `kubectl logs` prints of operating processes is the journal of their runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.ended import Ended, end_of, start
from tests.operate.conftest import ONCE

# Of what a pod writes to stderr; of another container; and a line that was cut off.
NOISE = ("warning: Node worker-1: a word", '{"level":"info","msg":"sidecar"}', '{"type":"step","at":"2026-11')


def report_of(home: Path, log: str, *arguments: str) -> Ended:
    (home / "pods.log").write_text(log)
    with (home / "pods.log").open() as stdin:
        return end_of(start(home, {}, ("report", "-", *arguments), stdin=stdin.fileno()))


@pytest.mark.exhaustive
def test_a_report_is_made_of_pods_logs_as_kubectl_prints_them(
    started: Callable[[str, int], Lab], rollout: Rollout, tmp_path: Path
) -> None:
    """One pass is killed, the next goes on, a third finds nothing to do; each is a pod with a prefix of its own."""
    lab, elsewhere = started("default", 4), tmp_path / "elsewhere"
    elsewhere.mkdir()
    killed = start(tmp_path, lab.environment, ONCE)
    assert killed.stdout is not None
    lines = []
    for line in killed.stdout:
        lines.append(line)
        if '"phase":"rebooting"' in line:
            break
    killed.kill()
    killed.communicate()
    passes = ["".join(lines), *(rollout(lab, *ONCE).stdout for _ in range(2))]
    log = "".join(
        f"[pod/now-{number}/rollout] 2026-11-23T01:00:00.0Z {line}{noise}\n"
        for number, text in enumerate(passes)
        for line, noise in zip(text.splitlines(keepends=True), (*NOISE, *[""] * 1000), strict=False)
    )
    told = report_of(elsewhere, log, "--format", "json")
    assert told.code == ExitCode.OK, told.stderr
    from_log: dict[str, Any] = json.loads(told.stdout)
    from_journal: dict[str, Any] = json.loads(rollout(lab, "report", "--format", "json").stdout)
    assert from_log.pop("gaps") == ["3 lines of the journal are cut off or damaged, and left out."]
    assert from_journal.pop("gaps") == []
    assert len(from_log["commands"]) == 2
    assert from_log == from_journal
