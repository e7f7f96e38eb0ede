"""Commands in texts for people, by the name under which the program was started."""

import pytest

from rollout.cli.program import as_started


@pytest.mark.parametrize(
    ("text", "as_plugin"),
    [
        ("    rollout plan --max-unavailable 3", "    kubectl node-rollout plan --max-unavailable 3"),
        ("hint: `rollout resume` continues it", "hint: `kubectl node-rollout resume` continues it"),
        ("See: rollout --help", "See: kubectl node-rollout --help"),
        ("the rollout resume takes", "the rollout resume takes"),
        ("it is not a rollout plan", "it is not a rollout plan"),
        (". rollout-lab/env", ". rollout-lab/env"),
        ("kubectl node-rollout plan", "kubectl node-rollout plan"),
    ],
)
def test_commands_are_named_as_the_program_was_started(
    text: str, as_plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-node_rollout"])
    assert as_started(text) == as_plugin
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/rollout"])
    assert as_started(text) == text
