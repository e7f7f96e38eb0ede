"""How much is tried: little by default, much with `--hypothesis-profile=thorough`."""

from hypothesis import HealthCheck, Phase, settings

from tests.crash.conftest import machine  # noqa: F401 - a fixture

QUICK = settings(
    stateful_step_count=10,
    deadline=None,
    database=None,
    # Processes and clocks are real: a failure need not come again, and looking for a smaller one would prove nothing.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("thorough", QUICK, max_examples=60, stateful_step_count=16)


def profile(few: int) -> settings:
    """The settings asked for on the command line, if they are ours; else so few examples."""
    is_thorough = settings.get_current_profile_name() == "thorough"
    return settings.get_profile("thorough") if is_thorough else settings(QUICK, max_examples=few)
