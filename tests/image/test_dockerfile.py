"""The container image is built of what the package needs, of what is locked, and of nothing else."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
    needed = {
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        *wheel["packages"],
    }
    assert taken() == {"pyproject.toml", *needed, *wheel["force-include"], *LOCKS}
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
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


EXTRAS = PROJECT["project"]["optional-dependencies"]


ASKED_FOR = {
    "requirements.lock": [
        *PROJECT["project"]["dependencies"],
        *EXTRAS["notify"],
        *EXTRAS["fleetlock"],
    ],
    "build.lock": PROJECT["build-system"]["requires"],
    "release.lock": PROJECT["dependency-groups"]["release"],
}


_ENTRY = re.compile(
    r"^([\w.-]+)==(\S+)(?: ;.*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_is_asked_for_is_locked_with_hashes(name: str) -> None:
    text = (ROOT / ".ci" / name).read_text()
    locked = [(package, version) for package, version, _ in _ENTRY.findall(text)]
    assert len(locked) == len(re.findall(r"^[^ #]+==", text, re.MULTILINE)), (
        "an entry without hashes"
    )
    for requirement in map(Requirement, ASKED_FOR[name]):
        versions = [
            version for package, version in locked if canonicalize_name(requirement.name) == package
        ]
        assert versions, f"{requirement} is not in .ci/{name}: run .ci/lock"
        assert all(map(requirement.specifier.contains, versions)), (
            f"{requirement}: .ci/{name} has {versions}"
        )


def test_nothing_of_the_lab_is_locked_for_the_image() -> None:
    text = (ROOT / ".ci" / "requirements.lock").read_text()
    locked = {package for package, _, _ in _ENTRY.findall(text)}
    lab, served = (
        {canonicalize_name(Requirement(line).name) for line in EXTRAS[name]}
        for name in ("lab", "fleetlock")
    )
    assert not locked & (lab - served)
    assert served <= locked


# The workflows are valid; where they may write they take nothing that can change under its name.


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


CHECK = Path(sys.executable).parent / "check-jsonschema"


def release() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "release.yml").read_text()
    )
    return document


def steps() -> Iterator[dict[str, Any]]:
    return (step for job in release()["jobs"].values() for step in job.get("steps", ()))


@pytest.mark.parametrize("schema", ["github-workflows", "dependabot"])
def test_they_are_valid(schema: str) -> None:
    files = [ROOT / ".github" / "dependabot.yml"] if schema == "dependabot" else WORKFLOWS
    command = [str(CHECK), "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_what_a_release_uses_is_pinned_by_commit() -> None:
    used = re.findall(r"uses: (.+)", (ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action) or action.startswith(
            "./"
        ), action


def test_each_job_has_no_more_rights_than_it_needs() -> None:
    document = release()
    assert document["permissions"] == {"contents": "read"}
    writes = {
        name: {right for right, level in job.get("permissions", {}).items() if level == "write"}
        for name, job in document["jobs"].items()
    }
    attests = {"id-token", "attestations"}
    assert writes == {
        "ci": set(),
        "packages": attests,
        "image": attests | {"packages"},
        "release": {"contents"},
    }


@pytest.mark.parametrize(("tag", "code"), [("v0.1.0", 0), ("v0.1", 1), ("v0.1.0.1", 1)])
def test_a_tag_that_is_not_the_version_ends_it(tag: str, code: int) -> None:
    (check,) = (step["run"] for step in steps() if step.get("name") == "The tag is the version")
    ended = subprocess.run(
        ["bash", "-ec", check], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/bin"}, check=False
    )
    assert ended.returncode == code


# What Krew installs: its manifest, filled with a version and sums, and what it starts.


def test_krew_takes_the_manifest() -> None:
    """The rules are those that Krew checks before it installs, and its index before it lists."""
    krew = runpy.run_path(str(ROOT / ".ci" / "krew"))
    places = [(platform.os, platform.arch) for platform in krew["PLATFORMS"]]
    sums = {
        f"{system}_{arch}": letter * 64
        for (system, arch), letter in zip(places, "abc", strict=True)
    }
    document = yaml.safe_load(krew["manifest"]("0.1.0", "owner/name", sums))
    assert document["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert document["kind"] == "Plugin"
    # it links the executable under the name that kubectl looks for, made of the plugin's
    name = document["metadata"]["name"]
    spec = document["spec"]
    assert f"kubectl-{name.replace('-', '_')}" in PROJECT["project"]["scripts"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    made = {
        (labels["os"], labels["arch"]): one
        for one in spec["platforms"]
        for labels in [one["selector"]["matchLabels"]]
    }
    assert list(made) == places == [("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64")]
    for (system, arch), one in made.items():
        file = f"kubectl-node_rollout-v0.1.0-{system}-{arch}.tar.gz"
        assert one["uri"] == f"https://github.com/owner/name/releases/download/v0.1.0/{file}"
        assert one["sha256"] == sums[f"{system}_{arch}"]
    for python in krew["PYTHONS"]:
        assert len(re.findall("^ansible-core==", krew["locked"](python), re.MULTILINE)) == 1


def test_the_plugin_says_which_python_it_needs(tmp_path: Path) -> None:
    for command in ("readlink", "dirname"):
        (tmp_path / command).symlink_to(str(shutil.which(command)))
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3.9\nexit 1\n")
    old.chmod(0o755)
    launcher = [str(shutil.which("sh")), str(ROOT / ".ci" / "krew-launcher"), "status"]
    ended = subprocess.run(
        launcher, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("Error: kubectl node-rollout needs Python 3.11 or newer")
    assert "hint:" in ended.stderr
