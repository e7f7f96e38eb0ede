"""The command that starts the rollout of a scenario."""

from rollout.lab.scenario import Scenario, flags_of

_ROLLBACK = "--rollback"


def run_words(scenario: Scenario) -> tuple[str, ...]:
    """`apply` with the flags of the scenario's plan; `rollback` if it plans one."""
    flags = list(flags_of(scenario))
    if _ROLLBACK not in flags:
        return ("apply", *flags)
    place = flags.index(_ROLLBACK)
    version = flags[place + 1]
    return ("rollback", version, *flags[:place], *flags[place + 2 :])
