"""Background jobs and some CI runners start pytest with SIGINT ignored; programs that tests start get the default."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def test_a_program_that_a_test_starts_is_interrupted_by_sigint() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


@pytest.mark.slow
def test_also_where_pytest_was_started_with_sigint_ignored() -> None:
    name = f"{Path(__file__).name}::{test_a_program_that_a_test_starts_is_interrupted_by_sigint.__name__}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{name}"]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout
