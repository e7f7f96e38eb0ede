"""How much is tried: little by default, much with `--hypothesis-profile=exhaustive`."""

from hypothesis import HealthCheck, Phase, settings

from tests.crash.conftest import machine  # noqa: F401 - a fixture

QUICK = settings(
    stateful_step_count=10,
    deadline=None,
    database=None,
    # Processes and clocks are real: a failure need not come again, and looking for a smaller one
    # would prove nothing.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
MUCH = settings(QUICK, max_examples=60, stateful_step_count=16)


def profile(few: int) -> settings:
    """So many examples by default."""
    return (
        MUCH
        if settings.get_current_profile_name() == "exhaustive"
        else settings(QUICK, max_examples=few)
    )
