"""A real run of 1,000 hosts by the real program, and its reports: how large they are, and how long they take.

With --trouble it is 80 hosts of which some fail, and pods that budgets hold. The journal and the reports are left in a
folder, for whoever wants to look at them. The folder may be named, and its journal reported again: --journal FILE.

Run: python tests/benchmarks/reported.py FOLDER [--trouble] [--nodes N] [--limit 100] [--speed 5] [--journal FILE]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.lab_process import lab_process, measured

HERE = Path(__file__).parent
MOST_BYTES = 3_000_000
FORMATS = {"html": "html", "markdown": "md", "json": "json"}
TROUBLE = ("--max-failures", "20", "--allow", "blocked", "--drain-timeout", "40s", "--reboot-timeout", "1m")


def main() -> None:
    """The run, where no journal of one is given, then its reports."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trouble", action="store_true")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--limit")
    parser.add_argument("--speed", type=float, default=5.0)
    parser.add_argument("--journal", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    name = "trouble" if asked.trouble else "fleet"
    journal = asked.journal or asked.folder / f"{name}.jsonl"
    if not asked.journal:
        run(asked, journal)
    for format_name, ending in FORMATS.items():
        report(journal.resolve(), asked.folder / f"{name}.{ending}", format_name)


def run(asked: argparse.Namespace, journal: Path) -> None:
    """Apply, written down in the journal."""
    journal.unlink(missing_ok=True)
    scenario = HERE / ("reported_trouble.yaml" if asked.trouble else "reported.yaml")
    limit = asked.limit or ("8" if asked.trouble else "100")
    began = time.monotonic()
    with lab_process(str(scenario), speed=asked.speed, nodes=asked.nodes) as lab:
        print(f"lab up after {time.monotonic() - began:.0f} s", flush=True)
        flags = ("--max-unavailable", limit, "--set", "waves.health-checks=1", *(TROUBLE if asked.trouble else ()))
        words = (
            sys.executable,
            "-m",
            "rollout",
            "apply",
            "--yes",
            "--set",
            f"output.journal={journal.resolve()}",
            *flags,
        )
        cost = measured(lab, words, asked.folder / "apply.txt")
        away = lab.scores["most_unavailable"]
    print(f"apply ended with {cost.code} after {cost.wall:.0f} s, {cost.cpu:.0f} s of CPU; {away} away at most")
    print(f"journal: {journal.stat().st_size / 1e6:.2f} MB", flush=True)


def report(journal: Path, out: Path, format_name: str) -> None:
    """One report of it."""
    words: Sequence[str] = ("report", str(journal), "--format", format_name, "--out", str(out))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rollout", *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    size, cpu = out.stat().st_size, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{format_name:<10}{size / 1e6:6.2f} MB  {cpu:5.1f} s of CPU", flush=True)
    if format_name == "json":
        told = json.loads(out.read_bytes())
        figures = {name: told[name] for name in ("ending", "succeeded", "failed", "evictions", "moved_twice")}
        print(f"  {figures}, {len(told['nodes'])} nodes, {len(told['holds'])} holds, {told['seconds']:.0f} s")
    assert size < MOST_BYTES, f"{out} is larger than {MOST_BYTES} bytes"


if __name__ == "__main__":
    main()
