"""What to do about an evicted pod that stays."""

from rollout.execution.drain.advice import steps_for_terminating
from rollout.report.columns import is_command
from tests.planning.builders import pod


def test_a_pod_that_ignores_its_grace_period_is_forced_only_at_last_and_with_a_warning() -> None:
    look, host, force = steps_for_terminating(pod("a", "w-1"))
    assert is_command(look)
    assert "journalctl -u kubelet" in host
    warning, _, command = force.rpartition(": ")
    assert command == "kubectl delete pod -n shop a --force"
    assert "can destroy data" in warning
    assert warning.endswith("as a last resort, force-delete the pod")


def test_no_force_is_offered_against_finalizers() -> None:
    """The API server keeps such a pod, whatever the grace period is."""
    steps = steps_for_terminating(pod("a", "w-1", finalizers=("example.org/hold",)))
    assert steps[0] == "kubectl get pod -n shop a -o yaml"
    assert not any(step.endswith("--force") for step in steps)
