"""Flag beats environment beats file beats default: for every option there is."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer

from rollout.cli.commands.check_update import CheckOptions
from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, NameOptions
from rollout.cli.options.courtesy import CourtesyOptions
from rollout.cli.options.detect import DetectCommandOptions
from rollout.cli.options.flattening import flattened
from rollout.cli.options.gates import GateOptions, LocalGateOptions
from rollout.cli.options.general import GeneralOptions, OutputFormat
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.reboot import RebootOptions
from rollout.cli.options.ssh import Executor, HostKeys, PlaybookOptions, SshOptions
from rollout.errors import UsageError
from rollout.model.policy import ControlPlaneOrder, Policy, Sharing, Strategy
from rollout.model.quantity import Count, Duration

Groups = tuple[
    ClusterOptions,
    SelectionOptions,
    PolicyOptions,
    SshOptions,
    LeaseOptions,
    NameOptions,
    GeneralOptions,
    GateOptions,
    LocalGateOptions,
    RebootOptions,
    DetectCommandOptions,
    CheckOptions,
    PlaybookOptions,
    CourtesyOptions,
]


@dataclass(frozen=True, slots=True)
class Sample:
    """One option with three values: as text, in TOML, and as the command gets it."""

    name: str
    texts: tuple[str, str, str]
    toml: str
    values: tuple[Any, ...]


def sample(name: str, texts: str, values: tuple[Any, ...], toml: str = "") -> Sample:
    flag, env, file = texts.split()
    return Sample(name, (flag, env, file), toml or f'"{file}"', values)


def path(name: str) -> Sample:
    return sample(name, "a b c", (Path("a"), Path("b"), Path("c")))


def word(name: str) -> Sample:
    return sample(name, "a b c", ("a", "b", "c"))


def number(name: str) -> Sample:
    return sample(name, "11 12 13", (11, 12, 13), "13")


def stretch(name: str) -> Sample:
    return sample(name, "1s 2m 3h", (Duration(1), Duration(120), Duration(10800)))


SAMPLES = [
    path("kubeconfig"),
    word("context"),
    sample("selector", "a=1 b=2 c=3", ("a=1", "b=2", "c=3")),
    sample("node", "a b,d c", (["a"], ["b,d"], ["c", "e"]), '["c", "e"]'),
    sample("exclude", "a b c", (["a"], ["b"], ["c"])),
    sample("max-unavailable", "1 25% 3", (Count(1), Count(25, percent=True), Count(3)), "3"),
    number("canary"),
    sample("strategy", "rolling waves rolling", tuple(Strategy(w) for w in ("rolling", "waves", "rolling"))),
    word("spread-by"),
    sample("sharing", "rate exclusive rate", tuple(Sharing(word) for word in ("rate", "exclusive", "rate"))),
    sample("control-plane", "first exclude last", tuple(ControlPlaneOrder(w) for w in ("first", "exclude", "last"))),
    sample("control-plane-selector", "a=1 !b c", ("a=1", "!b", "c")),
    sample("max-failures", "1 2 10%", (Count(1), Count(2), Count(10, percent=True))),
    stretch("drain-timeout"),
    number("grace-period"),
    sample("pod-selector", "a=1 !b c", ("a=1", "!b", "c")),
    number("skip-wait-for-delete-timeout"),
    stretch("reboot-timeout"),
    stretch("ready-timeout"),
    stretch("settle-timeout"),
    stretch("exclude-from-load-balancers"),
    Sample(
        "window",
        ("1:00 1h", "mon 2:00 2h UTC; 4:00 4h", "3:00 3h"),
        '["3:00 3h"]',
        (["1:00 1h"], ["mon 2:00 2h UTC", "4:00 4h"], ["3:00 3h"]),
    ),
    word("reboot-window-start"),
    word("reboot-window-length"),
    sample("before-reboot-annotations", "a b,d c", (["a"], ["b,d"], ["c"])),
    sample("after-reboot-annotations", "a b,d c", (["a"], ["b,d"], ["c"])),
    sample("hook-prefix", "a/ b/ c/", ("a/", "b/", "c/")),
    stretch("hook-timeout"),
    sample("blocking-pod-selector", "a=1 !b c", (["a=1"], ["!b"], ["c"])),
    sample("prometheus-url", "http://a http://b http://c", ("http://a", "http://b", "http://c")),
    word("alert-filter-regexp"),
    stretch("gate-timeout"),
    number("health-checks"),
    sample("ramp", "1 2,3 4,5%", ("1", "2,3", "4,5%")),
    stretch("soak"),
    sample("ignore-rival", "kured fluo cluo", (["kured"], ["fluo"], ["cluo"])),
    word("gate-command"),
    word("reboot-command"),
    word("detect-command"),
    sample(
        "detect",
        "annotation annotation,command update-engine,rpm-ostree",
        (["annotation"], ["annotation,command"], ["update-engine", "rpm-ostree"]),
        '["update-engine", "rpm-ostree"]',
    ),
    word("wall-message"),
    stretch("drain-delay"),
    stretch("reboot-delay"),
    stretch("wait-for-users"),
    sample("pre-reboot-node-labels", "a=1 b=,d=2 c=3", (["a=1"], ["b=,d=2"], ["c=3"])),
    sample("post-reboot-node-labels", "a=1 b=,d=2 c=3", (["a=1"], ["b=,d=2"], ["c=3"])),
    stretch("timeout"),
    stretch("stall-timeout"),
    path("pre-reboot-playbook"),
    path("post-reboot-playbook"),
    path("inventory"),
    word("ssh-user"),
    number("ssh-port"),
    path("ssh-key"),
    path("known-hosts"),
    path("log-file"),
    path("ssh-config"),
    sample("executor", "ansible ssh ansible", (Executor.ANSIBLE, Executor.SSH, Executor.ANSIBLE)),
    sample("host-key-checking", "off accept-new strict", tuple(HostKeys(w) for w in ("off", "accept-new", "strict"))),
    stretch("probe-timeout"),
    number("probe-concurrency"),
    word("lease-namespace"),
    word("cluster-name"),
    sample("output", "json text json", tuple(OutputFormat(w) for w in ("json", "text", "json"))),
]
SWITCHES = [
    "include-cordoned",
    "reboot-idle",
    "skip-blocked",
    "include-held",
    "force",
    "disable-eviction",
    "window-fit",
    "wait-window",
    "alert-filter-match-only",
    "alert-firing-only",
    "interactive",
    "wall",
    "fluo-labels",
]
SWITCHES_ON = ["delete-emptydir-data", "prefer-no-schedule-taint"]


def parse(*arguments: str) -> Groups:
    """What a command with every group of options gets for a command line."""
    got: list[Groups] = []
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        pass

    def probe(  # noqa: PLR0917 - typer's parameters; each is a group of options
        cluster: ClusterOptions,
        selection: SelectionOptions,
        policy: PolicyOptions,
        ssh: SshOptions,
        lease: LeaseOptions,
        naming: NameOptions,
        general: GeneralOptions,
        gates: GateOptions,
        local: LocalGateOptions,
        reboot: RebootOptions,
        detect_command: DetectCommandOptions,
        check: CheckOptions,
        playbooks: PlaybookOptions,
    ) -> None:
        own = (policy, ssh, lease, naming, general, gates, local, reboot, detect_command, check, playbooks)
        got.append((cluster, selection, *own, policy.courtesy))

    app.command()(flattened(probe))
    app(["probe", *arguments], standalone_mode=False)
    return got[0]


def value_of(groups: Groups, name: str) -> Any:
    attribute = name.replace("-", "_")
    return next(getattr(group, attribute) for group in groups if attribute in {item.name for item in fields(group)})


def variable(name: str) -> str:
    return "ROLLOUT_" + name.replace("-", "_").upper()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for item in [*(sample.name for sample in SAMPLES), *SWITCHES, "config"]:
        monkeypatch.delenv(variable(item), raising=False)


def settings(text: str) -> Path:
    Path("settings.toml").write_text(text, encoding="utf-8")
    return Path("settings.toml")


def test_every_option_is_in_the_table() -> None:
    groups = (
        *(ClusterOptions, SelectionOptions, PolicyOptions, GateOptions, LocalGateOptions, CourtesyOptions),
        *(SshOptions, PlaybookOptions, RebootOptions, DetectCommandOptions, CheckOptions, LeaseOptions, GeneralOptions),
        NameOptions,
    )
    every = {item.name.replace("_", "-") for group in groups for item in fields(group)}
    every.remove("courtesy")  # a group itself
    assert every == {sample.name for sample in SAMPLES} | {*SWITCHES, *SWITCHES_ON, "config", "verbose", "wait"}


@pytest.mark.parametrize("item", SAMPLES, ids=lambda item: item.name)
def test_flag_beats_environment_beats_file(item: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    in_file = ("--config", str(settings(f"{item.name} = {item.toml}\n")))
    flag, env, file = item.values
    assert value_of(parse(*in_file), item.name) == file
    monkeypatch.setenv(variable(item.name), item.texts[1])
    assert value_of(parse(*in_file), item.name) == env
    assert value_of(parse(*in_file, f"--{item.name}", item.texts[0]), item.name) == flag


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_have_the_same_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value_of(parse(), name) is False
    in_file = ("--config", str(settings(f"{name} = true\n")))
    assert value_of(parse(*in_file), name) is True
    monkeypatch.setenv(variable(name), "false")
    assert value_of(parse(*in_file), name) is False
    assert value_of(parse(*in_file, f"--{name}"), name) is True


def test_verbose_counts_and_is_a_switch_in_the_other_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert value_of(parse(), "verbose") == 0
    for written, value in (("true", 1), ("false", 0), ("2", 2)):
        in_file = ("--config", str(settings(f"verbose = {written}\n")))
        assert value_of(parse(*in_file), "verbose") == value
        monkeypatch.setenv(variable("verbose"), written)
        assert value_of(parse(), "verbose") == value
        monkeypatch.delenv(variable("verbose"))
    monkeypatch.setenv(variable("verbose"), "false")
    assert value_of(parse("--config", str(settings("verbose = true\n"))), "verbose") == 0
    assert [value_of(parse(word), "verbose") for word in ("-v", "--verbose", "-vv", "-vvv")] == [1, 1, 2, 3]
    monkeypatch.setenv(variable("verbose"), "loud")
    with pytest.raises(typer.TyperException, match="neither a number nor true or false"):
        parse()


@pytest.mark.parametrize("name", SWITCHES_ON)
def test_a_switch_that_is_on_can_be_turned_off_in_every_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value_of(parse(), name) is True
    in_file = ("--config", str(settings(f"{name} = false\n")))
    assert value_of(parse(*in_file), name) is False
    monkeypatch.setenv(variable(name), "1")
    assert value_of(parse(*in_file), name) is True
    assert value_of(parse(*in_file, f"--no-{name}"), name) is False


def test_waiting_has_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROLLOUT_WAIT is how long `rollout abort` waits."""
    monkeypatch.setenv("ROLLOUT_WAIT", "5m")
    assert value_of(parse(), "wait") is False
    monkeypatch.setenv("ROLLOUT_CHECK_UPDATE_WAIT", "true")
    assert value_of(parse(), "wait") is True


def test_a_table_goes_before_the_top_level() -> None:
    file = settings("canary = 1\nmax_unavailable = 2\n[probe]\ncanary = 5\n")
    groups = parse("--config", str(file))
    assert value_of(groups, "canary") == 5
    assert value_of(groups, "max-unavailable") == Count(2)


def test_rollout_toml_here_is_read_without_being_asked_for() -> None:
    Path("rollout.toml").write_text("canary = 7\n", encoding="utf-8")
    assert value_of(parse(), "canary") == 7
    assert value_of(parse("-c", str(settings("canary = 8"))), "canary") == 8


def test_the_file_itself_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_CONFIG", str(settings("canary = 9")))
    assert value_of(parse(), "canary") == 9


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("max-unavailble = 3", "unknown setting 'max-unavailble'", "max-unavailable"),
        ("config = 'x'", "unknown setting 'config'", "ssh-config"),
        ("zzz = 1", "unknown setting 'zzz'", "--help"),
        ("[prob]\ncanary = 1", "unknown table 'prob'", "probe"),
        ("[probe]\ncanry = 1", "unknown setting 'canry'", "canary"),
        ("force = 'yes'", "is neither true nor false", "true or false"),
        ("canary = true", "cannot be a value of --canary", ""),
        ("canary = [1, 2]", "takes one value", ""),
        ("canary = 1979-05-27", "cannot be a value of --canary", ""),
        ("canary =", "is not TOML", "texts in quotes"),
        ("[[pools]]\nname = 'a'", "unknown setting 'pools'", "[[pool]]"),
    ],
)
def test_mistakes_in_the_file(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=r"settings\.toml") as caught:
        parse("--config", str(settings(text)))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"cannot read nowhere\.toml"):
        parse("--config", "nowhere.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--drain-timeout", "10x"), "--drain-timeout.*'10x' is not a duration.*90s, 10m, 1h30m"),
        (("--drain-timeout", "0s"), "--drain-timeout.*no time"),
        (("--max-unavailable", "0"), "--max-unavailable.*no node"),
        (("--max-unavailable", "101%"), "--max-unavailable.*not a count"),
        (("--max-unavailable", "-1"), "--max-unavailable.*not a count"),
        (("--max-failures", "0%"), "--max-failures.*no node"),
        (("--canary", "x"), "--canary"),
        (("--canary", "-1"), "--canary"),
        (("--ssh-port", "0"), "--ssh-port"),
        (("--host-key-checking", "maybe"), "--host-key-checking.*strict"),
        (("--output", "yaml"), "--output.*json"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_impossible_values_name_their_flag(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(typer.TyperException) as caught:
        parse(*arguments)
    assert re.search(message, caught.value.format_message())


@pytest.mark.parametrize("name", ["max-unavailable", "drain-timeout", "ssh-port", "output"])
def test_impossible_values_are_found_in_every_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(typer.TyperException) as in_file:
        parse("--config", str(settings(f'{name} = "x"')))
    monkeypatch.setenv(variable(name), "x")
    with pytest.raises(typer.TyperException) as in_environment:
        parse()
    assert f"--{name}" in in_file.value.format_message()
    assert f"--{name}" in in_environment.value.format_message()


def test_names_may_be_repeated_and_separated_by_commas() -> None:
    selection = value_of(parse("--node", "a,b", "--node", "b", "--node", "c"), "node")
    assert SelectionOptions(node=selection).selection.nodes == ("a", "b", "c")


def test_rules_arrive_in_the_policy_under_their_names() -> None:
    groups = parse(
        "--canary", "2", "--force", "--drain-timeout", "90s", "--grace-period", "0", "--settle-timeout", "0s"
    )
    policy = next(group for group in groups if isinstance(group, PolicyOptions)).policy
    assert (policy.canary, policy.drain.force, policy.drain.timeout, policy.drain.grace_period) == (
        2,
        True,
        Duration(90),
        0,
    )
    assert policy.settle_timeout == Duration(0)


def test_windows_from_the_environment_end_at_semicolons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_WINDOW", "mon-fri 2:00 2h Europe/Berlin; 4:00 4h")
    gates = value_group(parse(), GateOptions)
    assert gates.added_to(Policy()).gates.windows.windows == ("mon-fri 2:00 2h Europe/Berlin", "4:00 4h")
    both = value_group(parse("--window", "sat 1:00 1h", "--window", "5:00 5h"), GateOptions)
    assert both.added_to(Policy()).gates.windows.windows == ("sat 1:00 1h", "5:00 5h")
    with pytest.raises(typer.BadParameter, match="'noon' is not a window"):
        parse("--window", "noon")


def value_group(groups: Groups, kind: type[GateOptions]) -> GateOptions:
    return next(group for group in groups if isinstance(group, kind))
