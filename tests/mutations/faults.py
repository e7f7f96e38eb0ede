"""Faults put into the engine one at a time (`faults.toml`), each of which the default tests have to find.

usage: python -m tests.mutations.faults [NUMBER | NAME ...]

Each is a replacement in a copy of this checkout; the tests that are named for it run there until
one fails. What nobody finds is listed at the end, and so is a fault whose text does not stand
exactly once in its file, which is no fault any more. An environment beside the copy has every
process import the program from there.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("rollout", "tests", "docs", "playbooks", "inventory", "pyproject.toml", "README.md")
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no")
SECONDS = 900


@dataclass(frozen=True)
class Fault:
    """What is wrong then; the file, the text in it, and what stands in its place; who should find it.

    `exhaustive`: only that tier finds it.
    """

    name: str
    file: str
    before: str
    after: str
    tests: Sequence[str]
    exhaustive: bool = False

    def place(self, root: Path) -> Path | None:
        """Where its text stands, once: in its file, or in the only other one; None where it cannot
        be put in.
        """
        named = root / self.file
        if named.exists() and self._times(named) == 1:
            return named
        found = [file for file in sorted((root / "rollout").rglob("*.py")) if self._times(file)]
        return found[0] if len(found) == 1 and self._times(found[0]) == 1 else None

    def _times(self, file: Path) -> int:
        return file.read_text(encoding="utf-8").count(self.before)

    def why_void(self, root: Path) -> str:
        """Why it is none any more, empty where it is one."""
        missing = [test for test in self.tests if not _has_test(root, test)]
        if missing:
            return f"there is no {missing[0]}"
        return "" if self.place(root) else "its text does not stand once in the program"


def _has_test(root: Path, test: str) -> bool:
    """`test` is FILE, or FILE::FUNCTION with or without [PARAMETERS]."""
    file, _, function = test.partition("::")
    path = root / file
    if not function:
        return path.exists()
    definition = f"def {function.partition('[')[0]}("
    return path.exists() and definition in path.read_text(encoding="utf-8")


def read_faults() -> Sequence[Fault]:
    """All of them, in order."""
    listed = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
    return [Fault(**fault) for fault in listed["fault"]]


def main(chosen: Sequence[str]) -> int:
    """Try the faults of these numbers or names, or all."""
    missed = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        copy.mkdir()
        for part in PARTS:
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / part)
        python = environment_of(copy)
        for number, fault in enumerate(read_faults(), 1):
            if chosen and not {str(number), fault.name} & {*chosen}:
                continue
            begun = time.monotonic()
            verdict = fault.why_void(copy)
            found = "" if verdict else finder(fault, copy, python)
            if not found:
                missed.append(fault.name)
            print(
                f"{number:2} {fault.name}: {found or verdict or 'NOT FOUND'}"
                f" ({time.monotonic() - begun:.0f} s)"
            )
            sys.stdout.flush()
    print(f"{len(missed)} not found: {', '.join(missed) or '-'}")
    return 1 if missed else 0


def environment_of(copy: Path) -> Path:
    """Make an environment beside the copy that has all of this one's packages, but the program from
    the copy.
    """
    place = copy.parent / "environment"
    ours = Path(sys.executable).parent
    venv.create(place, symlinks=True)
    for program in ours.iterdir():
        if not (place / "bin" / program.name).exists():
            (place / "bin" / program.name).symlink_to(program)
    lines = f"{copy}\nimport site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (site,) = place.glob("lib/python*/site-packages")
    (site / "copy.pth").write_text(lines, encoding="utf-8")
    return place / "bin" / "python"


def finder(fault: Fault, copy: Path, python: Path) -> str:
    """Which test fails with it in the copy, which is as before then; empty where none does."""
    file = fault.place(copy)
    assert file is not None
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    tier = ("-m", "") if fault.exhaustive else ()
    try:
        ended = subprocess.run(
            [str(python), *PYTEST, *tier, *fault.tests],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    finally:
        file.write_text(text, encoding="utf-8")
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
