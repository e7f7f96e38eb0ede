"""Programs that rollout starts, and how they end."""

import os
import signal

import pytest

from rollout.adapters.programs import signal_group


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_a_group_that_has_ended_is_no_error(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux and macOS say it differently."""

    def refuse(_group: int, _number: int) -> None:
        raise error

    monkeypatch.setattr(os, "killpg", refuse)
    signal_group(1234, signal.SIGTERM)
