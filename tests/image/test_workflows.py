"""The workflows are valid; where they may write they take nothing that can change under its name."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHECK = Path(sys.executable).parent / "check-jsonschema"


def release() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
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
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action) or action.startswith("./"), action


def test_each_job_has_no_more_rights_than_it_needs() -> None:
    document = release()
    assert document["permissions"] == {"contents": "read"}
    writes = {
        name: {right for right, level in job.get("permissions", {}).items() if level == "write"}
        for name, job in document["jobs"].items()
    }
    attests = {"id-token", "attestations"}
    assert writes == {"ci": set(), "packages": attests, "image": attests | {"packages"}, "release": {"contents"}}


def test_a_release_is_made_of_what_has_passed() -> None:
    jobs = release()["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    called = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())[True]  # `on`, to YAML 1.1
    assert "workflow_call" in called
    assert (jobs["packages"]["needs"], jobs["image"]["needs"]) == ("ci", "packages")
    assert jobs["release"]["needs"] == ["packages", "image"]


@pytest.mark.parametrize(("tag", "code"), [("v0.1.0", 0), ("v0.1", 1), ("v0.1.0.1", 1)])
def test_a_tag_that_is_not_the_version_ends_it(tag: str, code: int) -> None:
    (check,) = (step["run"] for step in steps() if step.get("name") == "The tag is the version")
    ended = subprocess.run(["bash", "-ec", check], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/bin"}, check=False)
    assert ended.returncode == code
