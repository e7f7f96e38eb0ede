"""The locks say which file of which version is installed, for all that pyproject.toml asks for.

Whether they are just what would be written anew, and whether each platform has wheels, takes the network: `.ci/lock
--check`, a step of `.ci/run`.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
ASKED_FOR = {
    "requirements.lock": [*PROJECT["project"]["dependencies"], *EXTRAS["notify"], *EXTRAS["fleetlock"]],
    "build.lock": PROJECT["build-system"]["requires"],
    "release.lock": PROJECT["dependency-groups"]["release"],
}
_ENTRY = re.compile(r"^([\w.-]+)==(\S+)(?: ;.*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_is_asked_for_is_locked_with_hashes(name: str) -> None:
    text = (ROOT / ".ci" / name).read_text()
    locked = [(package, version) for package, version, _ in _ENTRY.findall(text)]
    assert len(locked) == len(re.findall(r"^[^ #]+==", text, re.MULTILINE)), "an entry without hashes"
    for requirement in map(Requirement, ASKED_FOR[name]):
        versions = [version for package, version in locked if canonicalize_name(requirement.name) == package]
        assert versions, f"{requirement} is not in .ci/{name}: run .ci/lock"
        assert all(map(requirement.specifier.contains, versions)), f"{requirement}: .ci/{name} has {versions}"


def test_nothing_of_the_lab_is_locked_for_the_image() -> None:
    text = (ROOT / ".ci" / "requirements.lock").read_text()
    locked = {package for package, _, _ in _ENTRY.findall(text)}
    lab, served = (
        {canonicalize_name(Requirement(line).name) for line in EXTRAS[name]} for name in ("lab", "fleetlock")
    )
    assert not locked & (lab - served)
    assert served <= locked
