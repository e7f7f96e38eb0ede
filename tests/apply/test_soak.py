"""A wave that has settled, and what is looked at again once it has soaked.

The rollout's own stages on a real cluster of the lab; only the soaking itself is played: an hour in which nothing
passes but what the test lets happen.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.cli.settings.schema import Cluster, Settings, Ssh
from rollout.cli.stages.execute import RunSettings
from rollout.cli.stages.gather import gather
from rollout.cli.stages.plan import Intent, planned_run
from rollout.cli.wiring import system_clock
from rollout.execution.base.stop import StopRequest
from rollout.execution.gates.ports import GatePorts
from rollout.execution.rollout.execute import execute
from rollout.execution.rollout.ports import Ports
from rollout.gather.hosts.probe_command import USUAL_PROBE
from rollout.lab.lab import Lab
from rollout.model.gates import GatePolicy
from rollout.model.policy import ControlPlaneOrder, Policy, Selection
from rollout.model.progress import Notice, RunResult, StepEvent
from rollout.model.quantity import Count, Duration
from tests.apply.test_resume_health import cut_power

HOUR = Duration(3600)
BYSTANDER = "cp-3"
RULES = Policy(
    # two, so that one that is away leaves room for the next wave
    max_unavailable=Count(2),
    ramp=(Count(1),),
    control_plane=ControlPlaneOrder.EXCLUDE,
    settle_timeout=Duration(10),
    gates=GatePolicy(health_checks=1, soak=HOUR),
)
Started = Callable[[str, int], Lab]


class Soaking(StopRequest):
    """Lets something happen instead of the soaking, and all other waits be as they are."""

    def __init__(self, during: Callable[[], None]) -> None:
        super().__init__()
        self.during = during
        self.soaked = 0

    def wait(self, seconds: float) -> bool:
        if seconds != HOUR:
            return super().wait(seconds)
        self.soaked += 1
        self.during()
        return self.requested


class Notices:
    """Keeps what is told of the whole run."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def notify(self, event: StepEvent) -> None:
        if isinstance(event, Notice):
            self.messages.append(event.message)


def rolled_out(lab: Lab, stop: StopRequest, notices: Notices) -> RunResult:
    paths = {name: Path(value) for name, value in lab.environment.items()}
    ssh = Ssh(
        key=paths["ROLLOUT_SSH_KEY"],
        known_hosts=paths["ROLLOUT_KNOWN_HOSTS"],
        config=paths["ROLLOUT_SSH_CONFIG"],
        inventory=paths.get("ROLLOUT_INVENTORY"),
        port=int(lab.environment.get("ROLLOUT_SSH_PORT", "0")) or None,
    )
    intent = Intent(Selection(nodes=("worker-1", "worker-2")), RULES)
    settings = Settings(cluster=Cluster(kubeconfig=paths["KUBECONFIG"]), ssh=ssh)
    gathered = gather(settings, intent.selection, USUAL_PROBE)
    run = planned_run(intent, gathered, RunSettings(settings, GatePorts()), quiet=True)
    ports = Ports(run.connections.api, run.connections.shell, system_clock(), notices)
    return execute(run.plan, run.hosts, ports, run.options, stop)


@pytest.mark.exhaustive
def test_what_falls_sick_while_it_soaks_keeps_the_next_wave(started: Started) -> None:
    lab = started("default", 6)
    stop, notices = Soaking(lambda: cut_power(lab, BYSTANDER)), Notices()
    result = rolled_out(lab, stop, notices)
    assert [each.node for each in result.finished] == ["worker-1"]
    assert {each.node for each in result.not_started} == {"worker-2"}
    (why,) = {each.message for each in result.not_started}
    assert why == f"after wave 1 the cluster did not settle within 10s: node {BYSTANDER} is no longer Ready"
    assert "wave 1 is done; soaking for 1h" in notices.messages
    assert stop.soaked == 1


def test_what_stays_well_is_gone_on_with(started: Started) -> None:
    lab = started("default", 6)
    stop = Soaking(lambda: None)
    result = rolled_out(lab, stop, Notices())
    assert [each.succeeded for each in result.finished] == [True] * 2
    # nothing follows on the last wave that would have to wait for it
    assert stop.soaked == 1
