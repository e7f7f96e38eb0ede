"""What status says of a rollout that stopped half-way, and history of one that was undone."""

import re
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
        assert rollout(lab, "abort", "--yes", "--force-unlock", run).code == 0
        (row,) = [row for row in rollout(lab, "history").stdout.splitlines() if row.startswith(run)]
        assert row.endswith("aborted")
        assert f"{node} given back" in rollout(lab, "history", run[:6]).stdout
