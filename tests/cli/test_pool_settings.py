"""[[pool]] in the settings file: what is wrong is told with file, pool and key, before anything is asked."""

from pathlib import Path
from typing import Any

import pytest

from rollout.cli.options.pools import read_pools
from rollout.errors import ExitCode, UsageError
from rollout.model.policy import Pool, Strategy
from rollout.model.quantity import Count, Duration
from tests.ended import invoked

WEB = {"name": "web", "selector": "tier=web"}


def test_every_key_is_read_as_its_flag() -> None:
    written = {
        **WEB,
        "after": ["canary"],
        "max-unavailable": "25%",
        "canary": 2,
        "ramp": "1,10%",
        "strategy": "rolling",
        "spread-by": "zone",
        "reboot-idle": True,
        "drain-timeout": "30m",
        "reboot_timeout": "20m",
        "ready-timeout": "1m30s",
    }
    canary = {"name": "canary", "selector": "tier=canary", "max-unavailable": 1}
    assert read_pools([canary, written], "rollout.toml") == (
        Pool("canary", "tier=canary", max_unavailable=Count(1)),
        Pool(
            "web",
            "tier=web",
            after=("canary",),
            max_unavailable=Count(25, percent=True),
            canary=2,
            ramp=(Count(1), Count(10, percent=True)),
            strategy=Strategy.ROLLING,
            spread_by="zone",
            reboot_idle=True,
            drain_timeout=Duration(1800),
            reboot_timeout=Duration(1200),
            ready_timeout=Duration(90),
        ),
    )


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ("web", "rollout.toml: pool = 'web' is not a table"),
        ([{"selector": "a=b"}], "rollout.toml [[pool]] number 1: it has no name"),
        ([{"name": "No Name"}], "rollout.toml [[pool]] number 1: its name 'No Name' cannot be one"),
        ([{"name": "web"}], "rollout.toml [[pool]] number 1 (web): it has no selector"),
        ([WEB | {"selector": "a=="}, {}], "rollout.toml [[pool]] number 2: it has no name"),
        ([WEB | {"selector": "=x"}], "number 1 (web): selector = '=x': '=x' is not a label selector"),
        ([WEB | {"max-unavailable": 0}], "(web): max-unavailable = 0: 0 would take no node at all"),
        ([WEB | {"max-unavailable": True}], "(web): max-unavailable = True: it takes one value"),
        ([WEB | {"drain-timeout": "soon"}], "(web): drain-timeout = 'soon': 'soon' is not a duration"),
        ([WEB | {"strategy": "random"}], "(web): strategy = 'random': it is one of waves, rolling"),
        ([WEB | {"reboot-idle": "yes"}], "(web): reboot-idle = 'yes': write true or false"),
        ([WEB | {"canary": -1}], "(web): canary = -1: it takes a whole number from 0 on"),
        ([WEB | {"after": 3}], "(web): after = 3: it takes names of pools"),
        ([WEB | {"ramp": "0,1"}], "(web): ramp = '0,1': 0 would take no node at all"),
        ([WEB | {"force": True}], "(web): unknown setting 'force'"),
        ([WEB | {"after": ["canary"]}], "rollout.toml: pool 'web': after: there is no pool 'canary'"),
        ([WEB, WEB], "rollout.toml: pool 'web': there are 2 of this name"),
    ],
)
def test_what_is_wrong_is_named(tables: Any, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_pools(tables, "rollout.toml")
    assert says in raised.value.message


@pytest.mark.parametrize("command", ["plan", "status"])
def test_pools_that_wait_for_one_another_are_a_usage_error(tmp_path: Path, command: str) -> None:
    settings = tmp_path / "my.toml"
    settings.write_text(
        '[[pool]]\nname = "a"\nselector = "x"\nafter = ["b"]\n[[pool]]\nname = "b"\nselector = "y"\nafter = "a"\n'
    )
    ended = invoked(tmp_path, {}, (command, "-c", str(settings)))
    assert ended.code == ExitCode.USAGE
    assert f"{settings}: pool 'a': after: 'a', 'b' wait for one another" in ended.stderr
