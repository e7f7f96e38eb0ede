"""What a lab is tried with first: command lines for a shell, each as it is to be typed.

A scenario says its own where the usual ones would show nothing of it. What follows a `#` tells why.
"""

import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from rollout.lab.scenario import Scenario

_USUAL = (
    "rollout status",
    "rollout plan --max-unavailable 3",
    "rollout apply --max-unavailable 3",
    "kubectl get nodes",
)


def steps_of(scenario: Scenario) -> tuple[str, ...]:
    """The lines, in their order."""
    if not scenario.fleetlock:
        return scenario.steps or _USUAL
    url = urlsplit(scenario.fleetlock)
    # any other is served elsewhere, or behind something that this line would not start
    is_served_here = url.scheme == "http" and url.path in ("", "/")
    serve = (f"rollout fleetlock --listen {url.netloc}   # serves until Ctrl-C",) if is_served_here else ()
    return (*serve, "rollout fleetlock status   # in one more terminal, with the same env", "rollout status")


def flags_of(scenario: Scenario, command: str) -> Sequence[str]:
    """The flags with which a scenario is to be tried by this command; none where no line has it."""
    lines = (shlex.split(step, comments=True) for step in steps_of(scenario))
    return next((words[2:] for words in lines if words[:2] == ["rollout", command]), ())
