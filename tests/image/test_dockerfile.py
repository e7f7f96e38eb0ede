"""The container image is built of what the package needs, of what is locked, and of nothing else."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.image.dockerfile import Stage, copied, stages_of

ROOT = Path(__file__).parents[2]
STAGES = stages_of((ROOT / "Dockerfile").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {".ci/build.lock", ".ci/requirements.lock"}


def taken() -> set[str]:
    """What the Dockerfile takes from the source tree."""
    copies = (copied(step) for stage in STAGES for step in stage.all_of("COPY"))
    return {source for copy in copies if not copy.stage for source in copy.sources}


def last() -> Stage:
    return STAGES[-1]


def test_all_that_the_package_is_built_of_is_copied() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], *wheel["packages"]}
    assert taken() == {"pyproject.toml", *needed, *wheel["force-include"], *LOCKS}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == taken()
    assert all((ROOT / name).exists() for name in taken())


def test_it_runs_as_a_number_that_is_not_root_and_hears_signals() -> None:
    (user,) = last().all_of("USER")
    assert all(int(number) > 0 for number in user.text.split(":"))
    # a form with a shell would keep signals from the program
    (entrypoint,) = last().all_of("ENTRYPOINT")
    assert entrypoint.words == ["/opt/rollout/bin/rollout"]


def test_every_base_is_pinned_by_its_digest() -> None:
    names = {stage.name for stage in STAGES}
    bases = [stage.base for stage in STAGES if stage.base not in names]
    assert bases
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base) for base in bases), bases


def test_only_what_is_locked_is_installed() -> None:
    """The package itself comes from the source tree, alone and without an index."""
    installs = [
        words
        for stage in STAGES
        for step in stage.all_of("RUN")
        for words in step.text.split("&&")
        if re.search(r"\bpip\b.* (install|wheel)\b", words)
    ]
    assert len(installs) == 4
    for words in installs:
        own = "--no-deps" in words and ("--no-index" in words or "--no-build-isolation" in words)
        assert own or ("--require-hashes" in words and "--only-binary :all:" in words), words


@pytest.mark.parametrize("text", ["FROM a b c", "FROM a\nARG X=1", "RUN true", "FROM a\nHEALTHCHECK NONE"])
def test_what_cannot_be_shown_without_an_engine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown instruction|FROM a b c"):
        stages_of(text)
