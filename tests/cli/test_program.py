"""Commands in texts for people, by the name under which the program was started."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout.cli.program import COMMANDS, PLUGIN, PROGRAM, with_program_name
from rollout.model.text import shell_word


@pytest.mark.parametrize(
    ("text", "as_plugin"),
    [
        (
            "    rollout plan --max-unavailable 3",
            "    kubectl node-rollout plan --max-unavailable 3",
        ),
        ("hint: `rollout resume` continues it", "hint: `kubectl node-rollout resume` continues it"),
        ("See: rollout --help", "See: kubectl node-rollout --help"),
        ("the rollout resume takes", "the rollout resume takes"),
        ("it is not a rollout plan", "it is not a rollout plan"),
        (". rollout-lab/env", ". rollout-lab/env"),
        ("kubectl node-rollout plan", "kubectl node-rollout plan"),
        ("kubectl rollout status deployment/web", "kubectl rollout status deployment/web"),
        ("rollout  paused  4081.2.0", "rollout  paused  4081.2.0"),
        ("PDB shop/rollout plan", "PDB shop/rollout plan"),
        ("the node's rollout plan.json", "the node's rollout plan.json"),
        (
            "Continue: rollout resume. Undo: rollout abort.",
            "Continue: kubectl node-rollout resume. Undo: kubectl node-rollout abort.",
        ),
        (
            "rollout plan --out 'my rollout plan'",
            "kubectl node-rollout plan --out 'my rollout plan'",
        ),
        (
            "the hosts' way: rollout plan, the nodes' too",
            "the hosts' way: kubectl node-rollout plan, the nodes' too",
        ),
    ],
)
def test_commands_are_named_as_the_program_was_started(
    text: str, as_plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-node_rollout"])
    assert with_program_name(text) == as_plugin
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/rollout"])
    assert with_program_name(text) == text


WORDS = st.text() | st.lists(
    st.sampled_from((PROGRAM, *COMMANDS, "'", " ", "=", "$", ".")), max_size=6
).map(" ".join)


@given(name=st.sampled_from(sorted(COMMANDS)), words=st.lists(WORDS, max_size=4))
@example(name="plan", words=["it's a rollout plan", "rollout plan"])
def test_what_somebody_named_stands_in_a_command_as_it_was_named(
    name: str, words: list[str]
) -> None:
    typed = " ".join(map(shell_word, words))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["/usr/local/bin/kubectl-node_rollout"])
        assert with_program_name(f"    {PROGRAM} {name} {typed}") == f"    {PLUGIN} {name} {typed}"
