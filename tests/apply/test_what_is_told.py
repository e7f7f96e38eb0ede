"""What status says of a rollout that stopped half-way, and history of one that was undone."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.apply.test_resume import run_of, stopped_at


def test_status_knows_the_rollout_and_history_that_it_was_undone(
    started: Callable[[str, int], Lab], rollout: Rollout, tmp_path: Path
) -> None:
    lab = started("default", 6)
    with stopped_at(lab, tmp_path, "draining", "--max-unavailable", "1") as node:
        rows = rollout(lab, "status").stdout.splitlines()
        (begun,) = [row for row in rows if row.startswith(node)]
        assert re.search(r"(draining|cordoned|drained), wave \d of \d$", begun)
        assert any(re.search(r"its turn comes, wave \d of \d", row) for row in rows)
        run = run_of(lab)
        began = time.monotonic()
        undone = rollout(lab, "abort", "--yes", "--force-unlock", run)
        took = time.monotonic() - began
        assert undone.code == 0
        # what was foreseen is what came of it, and how long it took is how long an operator waited
        assert re.search(rf"{node}: \w+; is uncordoned, and our annotations are removed", undone.stdout)
        assert f"1 node given back: {node}" in undone.stdout
        foreseen, result = re.findall(r"(?i)the soft taint is removed from (.*)", undone.stdout)
        assert foreseen == result
        (seconds,) = re.findall(rf"{node}: given back, in (\d+)s", undone.stderr)
        assert int(seconds) <= took
        (row,) = [row for row in rollout(lab, "history").stdout.splitlines() if row.startswith(run)]
        assert row.endswith("aborted")
        assert f"{node} given back" in rollout(lab, "history", run[:6]).stdout
