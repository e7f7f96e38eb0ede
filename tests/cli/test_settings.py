"""Settings from a file, variables, `--set` and flags: which goes before which, and mistakes are
told by their place.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout.cli.settings.reading import (
    CommandSettings,
    PlacedValue,
    SettingValues,
    assignments,
    from_environment,
    merge_settings,
    read_file,
)
from rollout.cli.settings.rules import groups_of, policy_of, selection_of
from rollout.errors import ExitCode, UsageError
from rollout.model.detection import Source
from rollout.model.gates import AlertPolicy, HealthRule
from rollout.model.policy import Pool, Strategy
from rollout.model.quantity import Count, Duration
from tests.cli.conftest import Command

# One value for each kind of setting, as it stands in a file.
WRITTEN = """
[cluster]
name = "berlin"
[nodes]
node = ["worker-1", "node/worker-2,worker-3"]
allow = ["held", "kured"]
[detect]
sources = ["annotation"]
[ssh]
port = 2222
inventory = "hosts.ini"
[waves]
max-unavailable = "25%"
ramp = "1,10%"
strategy = "rolling"
[drain]
timeout = "20m"
grace-period = 5
force = true
[gates]
window = ["mon,tue 01:00 2h", "sat 02:00 3h; sun 02:00 3h"]
[fleetlock]
group = ["workers=2"]
group-selector = ["workers=a in (b,c)"]
"""


def read(
    tmp_path: Path, text: str, *words: str, flags: dict[str, object] | None = None
) -> CommandSettings:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    typed: SettingValues = {
        name: PlacedValue(value, f"flag {name}") for name, value in (flags or {}).items()
    }
    return merge_settings(read_file(file), {}, {**assignments(words), **typed})


def test_a_file_says_every_kind_of_setting(tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN)
    assert found.cluster.name == "berlin"
    assert selection_of(found).nodes == ("worker-1", "worker-2", "worker-3")
    assert found.ssh.port == 2222
    assert found.ssh.inventory == Path("hosts.ini")
    assert found.drain.timeout == Duration(1200)
    assert found.drain.grace_period == 5
    assert found.drain.force
    assert found.gates.window == ("mon,tue 01:00 2h", "sat 02:00 3h", "sun 02:00 3h")
    policy = policy_of(found)
    assert policy.include_held
    assert policy.gates.ignored_rivals == ("kured",)
    assert not policy.include_cordoned
    assert policy.max_unavailable == Count(25, percent=True)
    assert policy.ramp == (Count(1), Count(10, percent=True))
    assert policy.strategy == Strategy.ROLLING
    assert policy.detect == (Source.ANNOTATION,)
    assert groups_of(found.fleetlock).named["workers"].selector == "a in (b,c)"


def test_set_beats_the_file_and_flags_beat_both(tmp_path: Path) -> None:
    file = '[drain]\ntimeout = "1m"\n[waves]\nsoak = "1m"\ncanary = 1\n[nodes]\nnode = ["a"]\n'
    found = read(
        tmp_path,
        file,
        *("drain.timeout=2m", "waves.soak=2m", "nodes.node=b", "nodes.node=c,d"),
        flags={"drain.timeout": "3m"},
    )
    assert found.drain.timeout == Duration(180)
    assert found.waves.soak == Duration(120)
    assert found.waves.canary == 1
    assert found.nodes.node == ("b", "c", "d")
    assert set(found.typed) == {"drain.timeout", "nodes.node", "waves.soak"}


def test_secrets_have_variables() -> None:
    url = "https://hooks.example/T0"
    found = merge_settings(
        read_file(None), from_environment({"ROLLOUT_NOTIFY": f"{url} {url}/2"}, ()), {}
    )
    assert found.notify.url == (url, f"{url}/2")


def test_what_is_wrong_in_no_setting_is_no_default(tmp_path: Path) -> None:
    """A set of alerts that is empty takes back what a file says."""
    found = read(tmp_path, '[alerts]\nprometheus-url = "http://a"\n', "alerts.prometheus-url=")
    assert policy_of(found).gates.alerts == AlertPolicy()


@pytest.mark.parametrize(
    ("windows", "begin"),
    [
        ("", "2026-12-24T05:00"),
        ("22:00 6h Asia/Tokyo; sun 02:00 4h Asia/Tokyo", "2026-12-23T15:00"),
        ("22:00 6h Asia/Tokyo; sun 02:00 4h", "2026-12-24T05:00"),
    ],
)
def test_a_calendar_without_a_timezone_is_of_the_windows_or_of_this_machine(
    windows: str, begin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    file = tmp_path / "holidays.ics"
    day = "DTSTART;VALUE=DATE:20261224"
    file.write_text(f"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n{day}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
    monkeypatch.setattr(
        "rollout.adapters.clock.SystemClock.now", lambda _clock: datetime(2026, 12, 1, tzinfo=UTC)
    )
    found = read(tmp_path, "", f"gates.calendar={file}", f"gates.window={windows}")
    (freeze,) = policy_of(found).gates.windows.freezes
    assert freeze.startswith(begin)


MISTAKES = [
    (
        "[drain]\nforce = true\ntimout = '5m'\n",
        "own.toml:3: drain.timout: unknown setting",
        "drain.timeout",
    ),
    ("[drian]\ntimeout = '5m'\n", "own.toml:1: unknown table [drian]", "[drain]"),
    (
        "[drain]\n# said below\n'timeout' = '5x'\n",
        "own.toml:3: drain.timeout: '5x' is not a duration",
        "90s",
    ),
    (
        "[waves]\nmax-unavailable = 0\n",
        "own.toml:2: waves.max-unavailable: 0 would allow no node to be rebooted",
        "maximum number of nodes",
    ),
    ("[waves]\nstrategy = 'random'\n", "'random' is not one of waves, rolling", "rolling"),
    ("[drain]\nforce = 'perhaps'\n", "own.toml:2: drain.force: it must be true or false", ""),
    ("[ssh]\nport = 65536\n", "own.toml:2: ssh.port: 65536 is too large: the maximum is 65535", ""),
    (
        "[waves]\ncanary = 3000000000\n",
        "own.toml:2: waves.canary: 3000000000 is too large: the maximum is 2147483647",
        "",
    ),
    (
        "[nodes]\nallow = ['all']\n",
        "own.toml:2: nodes.allow: 'all' is not one of blocked",
        "cordoned",
    ),
    (
        "[[pool]]\nname = 'a'\nselector = 'x'\n[[pool]]\nname = 'b'\nselektor = 'y'\n",
        "own.toml:6: [[pool]] b: selektor",
        "selector",
    ),
    ("[[pool]]\nselector = 'a=b'\n", "own.toml:1: [[pool]] number 1: name is missing", "name"),
    (
        (
            "[[pool]]\nname = 'a'\nselector = 'x'\n\n[[pool]]\nname = 'b'\nselector ="
            " 'y'\ndrain-timeout = 'soon'\n"
        ),
        "own.toml:8: [[pool]] b: drain-timeout: 'soon' is not a duration",
        "90s",
    ),
    (
        "[[pool]]\nname = 'a'\nselector = 'x'\n[['pool']]\nselector = 'y'\n",
        "own.toml: [[pool]] number 2: name is missing",
        "name",
    ),
    (
        "waves.canary = 1\nwaves.canarie = 1\n",
        "own.toml:2: waves.canarie: unknown setting",
        "waves.canary",
    ),
    ("pool = 'web'\n", "own.toml:1: pool is not a list of tables", "[[pool]]"),
    ("[drain\n", "own.toml is not valid TOML", "[drain]"),
]


@pytest.mark.parametrize(("text", "message", "hint"), MISTAKES)
def test_a_mistake_is_told_with_file_line_and_key(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert message in raised.value.message
    assert hint.lower() in raised.value.hint.lower()


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("drain.timout=5m", "--set drain.timout: unknown setting", "drain.timeout"),
        ("max-unavailable=3", "--set max-unavailable: unknown setting", "waves.max-unavailable"),
        ("drain.timeout", "--set drain.timeout has no value", "drain.timeout=VALUE"),
        ("drain.timeout=5x", "--set drain.timeout: '5x' is not a duration", "90s"),
        ("gates.command='open", "--set gates.command: ", ""),
    ],
)
def test_a_mistake_in_an_assignment_names_its_key(
    word: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, "", word)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_secret_is_in_no_complaint(command: Command) -> None:
    for key in ("notify.url", "metrics.pushgateway"):
        ended = command("plan", "-v", "--set", f"{key}=nonsense://me:hunter22@x y").ends(
            ExitCode.USAGE
        )
        assert f"--set {key}: " in ended.stderr
        assert "hunter22" not in ended.stderr


def test_a_pool_has_rules_of_its_own(tmp_path: Path) -> None:
    text = """
[[pool]]
name = "canary"
selector = "tier=canary"
max-unavailable = 1

[[pool]]
name = "web"
selector = "tier=web"
after = ["canary"]
max-unavailable = "25%"
ramp = ["1", "10%"]
strategy = "rolling"
reboot-idle = true
drain-timeout = "30m"
"""
    assert policy_of(read(tmp_path, text)).pools == (
        Pool("canary", "tier=canary", max_unavailable=Count(1)),
        Pool(
            "web",
            "tier=web",
            after=("canary",),
            max_unavailable=Count(25, percent=True),
            ramp=(Count(1), Count(10, percent=True)),
            strategy=Strategy.ROLLING,
            reboot_idle=True,
            drain_timeout=Duration(1800),
        ),
    )


HEALTHY = """
[gates]
timeout = "10m"

[[gates.healthy]]
resource = "nodes/worker-1"
expression = "status.nodeInfo.osImage != ''"

[[gates.healthy]]
resource = "clusters.postgresql.cnpg.io/shop/db"
expression = "status.phase == 'Ready'"
"""


def test_tables_inside_a_table_are_read_in_their_order(tmp_path: Path) -> None:
    gates = policy_of(read(tmp_path, HEALTHY)).gates
    assert gates.timeout == Duration(600)
    assert gates.healthy == (
        HealthRule("nodes/worker-1", "status.nodeInfo.osImage != ''"),
        HealthRule("clusters.postgresql.cnpg.io/shop/db", "status.phase == 'Ready'"),
    )


@pytest.mark.parametrize(
    ("line", "replacement", "why"),
    [
        ("resource", "resource = 'Node worker-1'", ":6: [[gates.healthy]] number 1: resource: "),
        ("resource", "", ":5: [[gates.healthy]] number 1: resource is missing"),
        ("expression", "expression = '1 +'", ":7: [[gates.healthy]] number 1: expression: "),
        ("expression", "expression = 'size(status)'", "is of type int, not bool"),
        ("expression", "expresion = 'true'", ":7: [[gates.healthy]] number 1: expresion: unknown"),
    ],
)
def test_an_invalid_health_rule_is_refused_by_its_place(
    line: str, replacement: str, why: str, home: Path, command: Command
) -> None:
    lines = HEALTHY.splitlines()
    number = next(number for number, text in enumerate(lines) if text.startswith(line))
    lines[number] = replacement
    (home / "own.toml").write_text("\n".join(lines))
    assert why in command("history", "--config", "own.toml").ends(ExitCode.USAGE).stderr


@pytest.mark.parametrize("text", ["[gates.healthy]\nresource = 'a/b'", "[gates]\nhealthy = 3"])
def test_health_rules_are_a_list_of_tables(text: str, home: Path, command: Command) -> None:
    (home / "own.toml").write_text(text)
    refused = command("history", "--config", "own.toml").ends(ExitCode.USAGE)
    assert "gates.healthy is not a list of tables" in refused.stderr
    assert "Write each as [[gates.healthy]]." in refused.stderr


def test_a_health_rule_needs_its_library(
    home: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "own.toml").write_text(HEALTHY)
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    refused = command("history", "--config", "own.toml").ends(ExitCode.USAGE)
    assert "gates.healthy needs cel-expr-python, which is not installed" in refused.stderr
    assert "-m pip install 'cel-expr-python>=0.1.3'" in refused.stderr


def test_a_file_that_nobody_named_is_not_read(home: Path, command: Command) -> None:
    for name in ("rollout.toml", ".rollout.toml"):
        (home / name).write_text('[cluster]\nkubeconfig = "theirs.json"\n[drain]\nnonsense = 1\n')
        command("history").ends(ExitCode.OK)
        command("history", "--config", name).ends(ExitCode.USAGE)
        command("history", variables={"ROLLOUT_CONFIG": name}).ends(ExitCode.USAGE)


def test_a_named_file_that_anybody_may_write_is_refused(home: Path, command: Command) -> None:
    (home / "own.toml").write_text("")
    (home / "own.toml").chmod(0o666)
    refused = command("history", "-c", "own.toml").ends(ExitCode.USAGE)
    assert "own.toml (mode 0666)" in refused.stderr
    assert command("history", "-c", os.devnull).ends(ExitCode.OK).stderr == ""


# What runs on hosts is one line.


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "one\ntwo", "a\rb", "\x07", "a\u202eb", "a\u0085b"])
def test_what_is_no_line_of_text_is_refused(text: str, command: Command) -> None:
    ended = command("plan", "--set", f"reboot.command={text}")
    assert ended.code == ExitCode.USAGE
    assert ended.stdout == ""
    assert "one line of printable text" in ended.stderr
    assert "\x1b" not in ended.stderr


def test_a_rollback_refuses_to_finalize_a_staged_deployment(command: Command) -> None:
    finalize = "reboot.command=sudo -n rpm-ostree finalize-deployment --allow-missing-checksum"
    ended = command("plan", "--rollback", "4152.2.0", "--set", finalize)
    assert ended.code == ExitCode.USAGE
    assert "a rollback stages none" in ended.stderr
    assert "a rollback stages none" not in command("plan", "--set", finalize).stderr


def test_a_command_to_paste_keeps_a_flag_that_it_already_has(tmp_path: Path) -> None:
    """A longer timeout is advised in place of the one that was typed."""
    file = tmp_path / "rollout.toml"
    file.write_text("[drain]\ntimeout = '5m'\n")
    typed = {
        "drain.timeout": PlacedValue("10s", "--drain-timeout"),
        "reboot.timeout": PlacedValue("8m", "--reboot-timeout"),
    }
    settings = merge_settings(read_file(file), {}, typed)
    assert (
        settings.with_typed_settings("rollout resume --drain-timeout 40s")
        == f"rollout resume --drain-timeout 40s --reboot-timeout 8m --config {file}"
    )
