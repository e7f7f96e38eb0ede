import subprocess
from pathlib import Path

import pytest

from rollout.model.text import ssh_path

NAMES = ("plain", "a b", "%h", "a\\b", "it's", 'a "b"', "100%", "$HOME", "a\tb")


@pytest.mark.parametrize("name", NAMES)
def test_the_client_reads_the_file_that_is_meant(name: str, tmp_path: Path) -> None:
    """Of a list of files, where spaces separate them."""
    options = ["-o", f"UserKnownHostsFile={ssh_path(str(tmp_path / name))}", "-o", "LogLevel=DEBUG3"]
    asked = subprocess.run(
        ["ssh", "-F", "none", *options, "-o", "ProxyCommand=exit", "-G", "host.example"],
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in asked.stdout.splitlines() if line.startswith("userknownhostsfile "))
    assert line.partition(" ")[2].replace("%%", "%") == str(tmp_path / name)


@pytest.mark.parametrize("name", ["plain", "a b", "it's", 'a "b"'])
def test_an_included_file_is_the_one_that_is_meant(name: str, tmp_path: Path) -> None:
    """Without percent signs, and without what is a pattern there."""
    (tmp_path / name).write_text("User included\n")
    config = tmp_path / "config"
    config.write_text(f"Include {ssh_path(str(tmp_path / name), tokens=False)}\n")
    asked = subprocess.run(["ssh", "-F", config, "-G", "host.example"], capture_output=True, text=True, check=True)
    assert "user included\n" in asked.stdout
