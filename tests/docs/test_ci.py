"""The pipelines of docs/examples are valid, and do what the page says: their own steps, in a shell, against a lab."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.docs.pipelines import SECRETS, Job, Runner, document, github_job, gitlab_job, texts

CHECK = Path(sys.executable).parent / "check-jsonschema"
WRITE = "Write the secrets to files"
SCHEMAS = {".github/workflows/nodes.yml": "github-workflows", ".gitlab-ci.yml": "gitlab-ci"}


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=4, speed=60)


@pytest.fixture
def runner(lab: Lab, tmp_path: Path) -> Runner:
    place = tmp_path / "runner"
    place.mkdir()
    files = (lab.kubeconfig, lab.key, lab.known_hosts, lab.inventory)
    secrets = {name: path.read_text() for name, path in zip(SECRETS, files, strict=True)}
    return Runner(place, secrets)


def two_jobs(runner: Runner, kind: str) -> tuple[Job, Job | None]:
    """Plan, and what would come after approval."""
    if kind == "gitlab":
        return gitlab_job(runner, "plan"), gitlab_job(runner, "apply")
    plan = github_job(runner, "plan")
    assert plan is not None
    return plan, github_job(runner, "apply", plan.outputs)


def secrets_left(runner: Runner) -> list[Path]:
    """Files that hold the key, but for those that the runner itself gives."""
    key = runner.secrets["HOSTS_SSH_KEY"].strip().encode()
    files = (path for path in runner.place.rglob("*") if path.is_file() and "variables" not in path.parts)
    return [path for path in files if key in path.read_bytes()]


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yml"
    file.write_text(texts()[name])
    command = [str(CHECK), "--builtin-schema", f"vendor.{SCHEMAS[name]}", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_both_jobs_have_the_same_secrets_and_remove_them_whatever_happens() -> None:
    jobs = document(".github/workflows/nodes.yml")["jobs"].values()
    first, second = ([step for step in job["steps"] if step["name"] == WRITE] for job in map(named, jobs))
    assert first == second
    assert all(named(job)["steps"][-1]["if"] == "always()" for job in jobs)
    page = yaml.safe_load(texts()[".gitlab-ci.yml"])
    assert not any(key in page[job] for job in ("plan", "apply") for key in ("before_script", "after_script"))


def named(job: dict[str, list[dict[str, str]]]) -> dict[str, list[dict[str, str]]]:
    return {"steps": [{"name": step.get("name", ""), **step} for step in job["steps"]]}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_plan_that_was_looked_at_is_run(runner: Runner, lab: Lab, kind: str, tmp_path: Path) -> None:
    plan, apply = two_jobs(runner, kind)
    assert plan.status == 0, plan.log
    assert apply is not None
    assert apply.status == 0, apply.log
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert score.clean
    markdown = plan.summary or (runner.store / "plan.md").read_text()
    assert markdown.startswith("## Rollout plan\n\n4 nodes in 4 waves")
    assert "| `worker-1` |" in markdown
    if kind == "github":
        assert apply.summary.splitlines()[0].endswith("`: completed: 4 of 4 nodes succeeded")
        assert "### Where the time went" in apply.summary
    assert secrets_left(runner) == []
    assert "PRIVATE KEY" not in plan.log + apply.log
    # now nothing waits: with GitHub nobody is asked, with GitLab the job has nothing to do
    (tmp_path / "again").mkdir()
    plan, apply = two_jobs(replace(runner, place=tmp_path / "again"), kind)
    assert plan.status == 0, plan.log
    assert apply is None if kind == "github" else apply is not None and apply.status == 0
    assert set(lab.scoreboard().reboots.values()) == {1}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_hosts_that_do_not_answer_fail_the_job_which_still_shows_the_plan(runner: Runner, kind: str) -> None:
    inventory = re.sub(r"ansible_port: \d+", "ansible_port: 1", runner.secrets["HOSTS_INVENTORY"])
    away = replace(runner, secrets={**runner.secrets, "HOSTS_INVENTORY": inventory})
    job = gitlab_job(away, "plan") if kind == "gitlab" else github_job(away, "plan")
    assert job is not None
    assert job.status != 0
    markdown = job.summary or (away.store / "plan.md").read_text()
    assert "4 cannot be rebooted (4 unreachable)" in markdown
    assert secrets_left(away) == []


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_files_are_their_owners_alone(runner: Runner, kind: str) -> None:
    """As the program sees them that the job starts."""
    seen = runner.place / "seen"
    paths = '"$KUBECONFIG" "$ROLLOUT_SSH_KEY" "$ROLLOUT_KNOWN_HOSTS" "$ROLLOUT_INVENTORY"'
    looking = replace(runner, program=f"stat -c %a {paths} >{seen}")
    job = gitlab_job(looking, "plan") if kind == "gitlab" else github_job(looking, "plan")
    assert job is not None
    assert seen.read_text().split() == ["600"] * 4, job.log
