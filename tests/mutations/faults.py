"""Faults put into the engine one at a time (`faults.toml`), each of which the default tests have to find.

usage: python -m tests.mutations.faults [NUMBER ...]

Each is a replacement in a copy of this checkout; tests run there until one fails. What nobody finds is listed at the
end, and so is a fault whose text is no more. Programs that a test starts as a process of their own run without it.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("rollout", "tests", "docs", "playbooks", "inventory", "pyproject.toml", "README.md")
FAULTS = Path(__file__).with_name("faults.toml")


@dataclass(frozen=True)
class Fault:
    """What is wrong then; the file, the text in it, and what stands in its place; who should find it."""

    name: str
    file: str
    before: str
    after: str
    tests: Sequence[str]


def main(numbers: Sequence[int]) -> int:
    """Try the faults of these numbers, or all."""
    missed = list[str]()
    faults = [Fault(**fault) for fault in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        for number, fault in enumerate(faults, 1):
            if numbers and number not in numbers:
                continue
            begun, found = time.monotonic(), finder(fault, copy)
            if not found:
                missed.append(fault.name)
            print(f"{number:2} {fault.name}: {found or 'NOT FOUND'} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(missed)} not found: {', '.join(missed) or '-'}")
    return 1 if missed else 0


def finder(fault: Fault, copy: Path) -> str:
    """Which test fails with it; empty where none does."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / part)
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    if fault.before not in text:
        return ""
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    tests = [test for test in fault.tests if (copy / test).exists()]
    ended = subprocess.run([*words, *tests], cwd=copy, capture_output=True, text=True, check=False)
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]]))
