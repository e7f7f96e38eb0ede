"""The API server stopped for two minutes, by the wall clock, in each phase of a node and while a wave settles.

`python tests/benchmarks/outage.py [SECONDS]`. A lab at real speed for each phase, all side by side; about ten minutes.
The server is gone as one that was stopped is: no listener, every connection cut. Printed are how long the rollout then
took to go on after the server was back, and what the cluster saw.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario

MOMENTS = ("pending", "cordoned", "draining", "drained", "rebooting", "booted", "ready", "settling")
APPLY = ("apply", "--yes", "-o", "json", "--max-unavailable", "1", "--control-plane", "exclude")
NODES = ("--node", "worker-1", "--node", "worker-2")


@dataclass(frozen=True)
class Survived:
    """What came of one outage; seconds."""

    moment: str
    code: int
    total: float
    going_on: float | None
    clean: bool
    reboots: tuple[int, ...]
    notices: tuple[str, ...]


def is_moment(line: Mapping[str, Any], moment: str) -> bool:
    """Whether this line tells of the moment; a wave settles from the end of its last node on."""
    if moment == "settling":
        return bool(line["type"] == "node_finished")
    return bool(line["type"] == "step" and line["phase"] == moment)


def survive(moment: str, seconds: float) -> Survived:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with Lab.start(scale(load_scenario("default"), 6), directory=directory / "lab", speed=1) as lab:
            return stopped_in(lab, directory, moment, seconds)


def stopped_in(lab: Lab, home: Path, moment: str, seconds: float) -> Survived:
    began, notices = time.monotonic(), []
    back: datetime | None = None
    going_on: float | None = None
    process = subprocess.Popen(
        [sys.executable, "-m", "rollout", *APPLY, *NODES],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **lab.environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for written in process.stdout:
        line = json.loads(written)
        if line["type"] == "notice":
            notices.append(str(line["message"]))
        if back is None and is_moment(line, moment):
            lab.run(lab.api.go_away)
            time.sleep(seconds)
            lab.call(lab.api.come_back)
            back = datetime.now(UTC)
        elif back is not None and going_on is None and line["type"] in ("step", "node_finished", "wave_started"):
            # what was told while the server was away has waited in the pipe
            passed = (datetime.fromisoformat(line["at"]) - back).total_seconds()
            going_on = passed if passed > 0 else None
    code, score = process.wait(), lab.scoreboard()
    reboots = (score.reboots["worker-1"], score.reboots["worker-2"])
    clean = score.clean and not score.annotations_left
    return Survived(moment, code, time.monotonic() - began, going_on, clean, reboots, tuple(notices))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=120.0)
    seconds = parser.parse_args().seconds
    with ThreadPoolExecutor(len(MOMENTS)) as pool:
        for told in pool.map(lambda moment: survive(moment, seconds), MOMENTS):
            print(f"{told.moment:10} exit {told.code}, {told.total:.0f} s in all; went on {told.going_on} s after the")
            print(
                f"{'':10} server was back; reboots {told.reboots}, clean {told.clean}; {told.notices[:1]}", flush=True
            )


if __name__ == "__main__":
    main()
