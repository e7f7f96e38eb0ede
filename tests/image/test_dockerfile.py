"""The container image is built of what the package needs, and of nothing else."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def copied() -> set[str]:
    """What the Dockerfile takes from the source tree."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return {name for line in lines for name in line.split()}


def test_all_that_the_package_is_built_of_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {project["project"]["readme"], *project["project"]["license-files"], *wheel["packages"]}
    assert copied() == {"pyproject.toml", *needed, *wheel["force-include"]}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == copied()
    assert all((ROOT / name).exists() for name in copied())


def test_it_runs_as_a_number_that_is_not_root_and_hears_signals() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    # a form with a shell would keep signals from the program
    assert re.search(r'^ENTRYPOINT \["/opt/rollout/bin/rollout"\]$', DOCKERFILE, re.MULTILINE)
