"""A plan is saved in one place and run in another, and a rollout is resumed by the rules that stand
on the cluster: both can be written by whoever may write there, and a digest can be reckoned again.
The rule: neither chooses where a secret goes; the token of Prometheus is sent only where this
process's own settings point. What such rules give up of what the defaults keep is shown before they
run. And saving a plan writes what the operator named, as `>` would: it replaces no device, pipe or
link, and takes mode and umask as they are.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.model.gates import AlertPolicy
from rollout.model.policy import Policy, Pool, Restart
from rollout.model.quantity import Count, Duration
from rollout.planning.plan.document import _document_id
from rollout.planning.plan.rules import relaxed_rules
from tests.conftest import StartLab
from tests.ended import Ended, invoked, start
from tests.scripted_api import Exchange, scripted

TOKEN = "s3cr3t-t0ken"
ONE = ("--node", "worker-1", "--set", "waves.health-checks=1", "--set", "gates.timeout=1s")
FIRING = {"metric": {"alertname": "DiskFull", "alertstate": "firing"}, "value": [1.5, "1"]}


def rollout(home: Path, lab: Lab, *arguments: str, **variables: str) -> Ended:
    return invoked(home, {**lab.environment, **variables}, arguments)


@dataclass
class Prometheus:
    """Records what each request carries as its login, and has `alerts`."""

    url: str = ""
    logins: list[str | None] = field(default_factory=list)
    alerts: list[object] = field(default_factory=list)

    def answer(self, exchange: Exchange) -> None:
        self.logins.append(exchange.headers.get("Authorization"))
        told = {"status": "success", "data": {"resultType": "vector", "result": self.alerts}}
        exchange.answer(200, json.dumps(told).encode())


@contextmanager
def serving() -> Iterator[Prometheus]:
    prometheus = Prometheus()
    with scripted(prometheus.answer) as server:
        prometheus.url = server.url
        yield prometheus


def saved_plan(home: Path, lab: Lab, *flags: str) -> Path:
    rollout(home, lab, "plan", "--out", "saved.plan", *flags).ends(0)
    return home / "saved.plan"


def forge(plan: Path, url: str) -> None:
    """Another Prometheus in a saved plan, with its digest reckoned again."""
    document = json.loads(plan.read_bytes())
    document["policy"]["gates"]["alerts"]["url"] = url
    document["plan_id"] = _document_id(json.dumps(document).encode())
    plan.write_text(json.dumps(document))


def test_a_forged_plan_gets_no_token(untouched: Lab, home: Path) -> None:
    with serving() as ours, serving() as theirs:
        ours.alerts = theirs.alerts = [FIRING]
        plan = saved_plan(home, untouched, *ONE, "--set", f"alerts.prometheus-url={ours.url}")
        forge(plan, theirs.url)
        for own in ("", f'[alerts]\nprometheus-url = "{ours.url}"\n'):
            (home / "own.toml").write_text(own)
            words = ("apply", str(plan), "-c", "own.toml")
            ended = rollout(home, untouched, *words, ROLLOUT_PROMETHEUS_TOKEN=TOKEN).ends(
                ExitCode.USAGE
            )
            assert f"ROLLOUT_PROMETHEUS_TOKEN is not sent to {theirs.url}" in ended.stderr
            assert TOKEN not in ended.stdout + ended.stderr
        rollout(
            home, untouched, "apply", str(plan), "--set", f"alerts.prometheus-url={ours.url}"
        ).ends(ExitCode.USAGE)
        assert ours.logins == []
        assert theirs.logins == []
        without = rollout(home, untouched, "apply", str(plan), "-o", "json")
        assert without.summary["not_started"] == ["worker-1"]
        assert set(theirs.logins) == {None}


def test_a_rollout_that_is_resumed_gets_no_token_for_its_own_prometheus(
    start_lab: StartLab, home: Path
) -> None:
    """Whoever may write ConfigMaps there chooses the rules that the record holds."""
    lab = start_lab("default", nodes=5)
    with serving() as theirs:
        flags = (
            *("apply", "--yes", "-o", "json"),
            *ONE,
            "--set",
            f"alerts.prometheus-url={theirs.url}",
        )
        process = start(home, lab.environment, flags)
        assert process.stdout is not None
        while '"draining"' not in (line := process.stdout.readline()):
            assert line, process.communicate()
        process.kill()
        process.communicate()
        theirs.logins.clear()
        for own in ("", '[alerts]\nprometheus-url = "http://127.0.0.1:1"\n'):
            (home / "own.toml").write_text(own)
            ended = rollout(
                home, lab, "resume", "--yes", "-c", "own.toml", ROLLOUT_PROMETHEUS_TOKEN=TOKEN
            ).ends(ExitCode.USAGE)
            assert f"ROLLOUT_PROMETHEUS_TOKEN is not sent to {theirs.url}" in ended.stderr
        rollout(
            home, lab, "resume", "--yes", "--set", "alerts.prometheus-url=http://127.0.0.1:1"
        ).ends(ExitCode.USAGE)
        assert theirs.logins == []
        assert sum(lab.scoreboard().reboots.values()) == 0
        command = ("resume", "--yes", "-o", "json", "--set", f"alerts.prometheus-url={theirs.url}")
        resumed = rollout(home, lab, *command, ROLLOUT_PROMETHEUS_TOKEN=TOKEN).ends(0)
        assert (
            f"warning: continuing with the original alerts.prometheus-url {theirs.url}"
            in resumed.stderr
        )
        assert lab.scoreboard().clean


WEAK = (
    *("--disable-eviction", "--force", "--pod-selector", "app!=db"),
    *("--set", "drain.skip-wait-for-delete-timeout=5"),
    *("--allow", "kured", "--max-unavailable", "3", "--max-failures", "50%", "--allow", "cordoned"),
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The home of somebody else, or of another machine: no plan was saved there."""
    made = tmp_path / "elsewhere"
    made.mkdir()
    return made


def dry_run(home: Path, lab: Lab, plan: Path, *arguments: str, **variables: str) -> Ended:
    return rollout(
        home, lab, "apply", str(plan), "--yes", "--dry-run", *arguments, **variables
    ).ends(0)


def shown_rules(ended: Ended) -> set[str]:
    lines = [line for line in ended.stdout.splitlines() if line.startswith("! --")]
    return {line.removeprefix("! ").split(":")[0] for line in lines}


def test_what_a_saved_plan_gives_up_is_shown_before_it_runs(
    untouched: Lab, home: Path, elsewhere: Path
) -> None:
    plan = saved_plan(home, untouched, *WEAK)
    ended = dry_run(elsewhere, untouched, plan, "-o", "json")
    notices = [line["message"] for line in ended.lines if line["type"] == "notice"]
    for rule in (
        *(word for word in WEAK if word.startswith("--") and word != "--set"),
        "drain.skip-wait-for-delete-",
    ):
        assert f"warning: the saved plan has {rule}" in ended.stderr
        assert any(notice.startswith(f"the saved plan has {rule}") for notice in notices)
    types = [line["type"] for line in ended.lines]
    assert types.index("notice") < types.index("plan")
    # people are shown it once, on the screen of the plan, whoever has saved it
    shown = dry_run(home, untouched, plan)
    assert "the saved plan has" not in shown.stderr
    assert "--max-unavailable 3: maximum number of nodes unavailable at once" in shown.stdout
    assert "--disable-eviction: pods are deleted" in shown.stdout


def test_a_plan_that_was_changed_since_shows_its_rules_as_they_are_now(
    untouched: Lab, home: Path
) -> None:
    plan = saved_plan(home, untouched, "--max-unavailable", "2")
    document = json.loads(plan.read_bytes())
    document["policy"]["max_failures"] = "50%"
    document["plan_id"] = _document_id(json.dumps(document).encode())
    plan.write_text(json.dumps(document))
    assert shown_rules(dry_run(home, untouched, plan)) == {
        "--max-unavailable 2",
        "--max-failures 50%",
    }


# Rules that can be weaker than their defaults, each with such a value.
WEAKER: dict[str, Any] = {
    "max_unavailable": Count(2),
    "include_cordoned": True,
    "include_held": True,
    "reboot_idle": True,
    "drain.grace_period": 0,
    "drain.force": True,
    "drain.disable_eviction": True,
    "drain.pod_selector": "app=web",
    "drain.skip_wait_for_delete_timeout": 1,
    "drain.restart": Restart.BLOCKED,
    "settle_timeout": Duration(0),
    "max_failures": Count(100, percent=True),
    "gates.alerts.url": "http://prometheus:9090",
    "gates.alerts.matchers": ('severity="critical"',),
    "gates.health_checks": 1,
    "gates.ignored_rivals": ("kured",),
    "pools": (Pool("web", "tier=web", reboot_idle=True),),
}


def changed(policy: Any, path: str, value: object) -> Any:
    name, _, rest = path.partition(".")
    return replace(policy, **{name: changed(getattr(policy, name), rest, value) if rest else value})


@pytest.mark.parametrize("path", WEAKER)
def test_every_weaker_rule_is_told(path: str) -> None:
    watched = (
        AlertPolicy("http://prometheus:9090") if path.startswith("gates.alerts") else AlertPolicy()
    )
    before = changed(
        Policy(), "gates.alerts", watched if path != "gates.alerts.url" else AlertPolicy()
    )
    assert set(relaxed_rules(changed(before, path, WEAKER[path]))) - set(relaxed_rules(before))
