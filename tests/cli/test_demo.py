"""The demo at the demo's speed."""

from rollout.errors import ExitCode
from tests.cli.conftest import Command


def test_a_scenario_is_planned_with_its_own_flags(command: Command) -> None:
    """Else hosts that say otherwise than by update_engine that they need a reboot would show nothing."""
    ended = command("demo", "--scenario", "sources", "--speed", "60")
    sources = "--set detect.sources=update-engine,annotation,reboot-required,rpm-ostree"
    shown = " ".join(ended.stdout.split())
    assert f"$ rollout status {sources} NODE" in shown
    assert f"$ rollout plan {sources} --max-unavailable 3 --out " in shown
    assert "12 nodes: 8 pending, 3 up to date, 1 inhibited" in ended.stdout
    # the earlier run that it simulates is one that plans learn from
    assert "About " in shown
    assert "no history yet" not in shown
    # one of them goes on saying so after its reboot, which ends the rollout
    assert ended.code == ExitCode.PARTIAL
    assert "✘ worker-5  the host rebooted, not proven by reboot-required" in ended.stdout
    # and of those that were to reboot, and not to change, no old version is told
    assert "on its old version" not in ended.stdout
