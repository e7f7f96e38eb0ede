"""Each benchmark says how it is called, and refuses what it does not know before it measures anything."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
# What the others start, not a benchmark.
PARTS = {"lab_process.py"}
BENCHMARKS = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in PARTS)


def ended(name: str, word: str, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sys, "argv", [name, word])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    return end.value.code


@pytest.mark.parametrize("name", BENCHMARKS)
def test_tells_its_usage(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(name, "--help", monkeypatch) == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_refuses_unknown_words(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(name, "--no-such-flag", monkeypatch) == 2
    assert f"{name}: error: " in capsys.readouterr().err
