"""What users of kubectl type by habit, and what it means here."""

import json
from pathlib import Path

import pytest
import yaml

from rollout.cli.flags import split_off_plan
from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.cli.conftest import TINY, Command
from tests.conftest import StartLab


@pytest.fixture(scope="module")
def tiny(shared_lab: StartLab) -> Lab:
    return shared_lab(TINY)


def test_status_takes_names_as_kubectl_get_node_does(command: Command, tiny: Lab) -> None:
    rows = json.loads(
        command("status", "worker-1", "node/worker-2", "-o", "json", lab=tiny).stdout
    )["nodes"]
    assert [row["node"] for row in rows] == ["worker-1", "worker-2"]


def test_names_and_the_flag_choose_together(command: Command, tiny: Lab) -> None:
    rows = json.loads(
        command("status", "worker-1", "--node", "worker-3", "-o", "json", lab=tiny).stdout
    )["nodes"]
    assert [row["node"] for row in rows] == ["worker-1", "worker-3"]


def test_a_name_that_no_node_has_is_not_found(command: Command, tiny: Lab) -> None:
    ended = command("status", "worker-99", lab=tiny).ends(ExitCode.ERROR)
    assert "there is no node worker-99" in ended.stderr
    assert "hint: Similar: worker-" in ended.stderr


def test_a_plan_of_named_nodes_leads_to_their_rollout(command: Command, tiny: Lab) -> None:
    ended = command("plan", "worker-2", lab=tiny).ends(ExitCode.OK)
    assert ended.stdout.startswith("1 node in ")
    assert ended.stdout.endswith("Next:\n    rollout apply --node worker-2\n")


def test_apply_takes_names(command: Command, tiny: Lab) -> None:
    lines = (
        command("apply", "worker-2", "--dry-run", "-o", "json", lab=tiny).ends(ExitCode.OK).lines
    )
    assert [line["node"] for line in lines if line["type"] == "dry_run"] == ["worker-2"]


def test_names_of_nodes(command: Command, tiny: Lab) -> None:
    ended = command("status", "worker-1", "worker-2", "-o", "name", lab=tiny).ends(ExitCode.OK)
    assert ended.stdout == "node/worker-1\nnode/worker-2\n"


def test_names_of_planned_nodes(command: Command, tiny: Lab) -> None:
    assert (
        command("plan", "worker-3", "-o", "name", lab=tiny).ends(ExitCode.OK).stdout
        == "node/worker-3\n"
    )


@pytest.mark.parametrize("words", [("status",), ("plan", "worker-1"), ("doctor",)], ids=" ".join)
def test_yaml_has_the_fields_of_json(command: Command, tiny: Lab, words: tuple[str, ...]) -> None:
    written = yaml.safe_load(command(*words, "-o", "yaml", lab=tiny).stdout)
    document = json.loads(command(*words, "-o", "json", lab=tiny).stdout)
    assert written.keys() == document.keys()
    assert json.dumps(written).count("worker-1") == json.dumps(document).count("worker-1")


def test_history_is_printed_as_yaml(command: Command) -> None:
    assert yaml.safe_load(command("history", "-o", "yaml").stdout)["runs"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "-o", "yaml"),
        ("resume", "-o", "name"),
        ("pause", "--all", "-o", "name"),
        ("doctor", "-o", "name"),
        ("inventory", "-o", "text"),
        ("report", "-o", "wide"),
        ("evidence", "-o", "text"),
    ],
    ids=" ".join,
)
def test_a_format_that_a_command_cannot_print_is_refused_before_it_does_anything(
    command: Command, words: tuple[str, ...]
) -> None:
    ended = command(*words).ends(ExitCode.USAGE)
    assert f"{words[-2]} {words[-1]} is not available for this command" in ended.stderr
    assert "Use -o with " in ended.stderr


def test_a_variable_for_text_output_does_not_stop_a_command_without_text(
    command: Command, tiny: Lab
) -> None:
    ended = command("inventory", lab=tiny, variables={"ROLLOUT_OUTPUT": "wide"}).ends(ExitCode.OK)
    assert "worker-1" in json.loads(ended.stdout)["nodes"]["hosts"]


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("evidence", "json"),
        ("inventory", "json or yaml [json]"),
        ("report", "json or yaml; default: from the file extension of --out, else Markdown"),
        ("doctor", "text, wide, json or yaml [text]"),
        ("plan", "text, wide, json, yaml or name [text]"),
    ],
)
def test_help_names_the_formats_of_the_command(command: Command, name: str, formats: str) -> None:
    shown = " ".join(command(name, "--help").stdout.split())
    assert f"Output format: {formats} -v, --verbose" in shown


def saved(command: Command, lab: Lab, folder: Path) -> str:
    file = str(folder / "web")
    command("plan", "worker-1", "--out", file, lab=lab).ends(ExitCode.OK)
    return file


def test_apply_takes_a_saved_plan_by_the_flag_of_kubectl(
    command: Command, tiny: Lab, tmp_path: Path
) -> None:
    file = saved(command, tiny, tmp_path)
    ended = command("apply", "-f", file, "--dry-run", lab=tiny).ends(ExitCode.OK)
    assert ended.stdout.startswith(f"{file}, made ")


def test_two_plans_are_refused(command: Command) -> None:
    ended = command("apply", "a.plan", "-f", "b.plan").ends(ExitCode.USAGE)
    assert "two plans: a.plan and b.plan" in ended.stderr


def requests(lab: Lab, command: Command, *flags: str) -> str:
    return command("apply", "worker-1", *flags, "-o", "json", lab=lab).ends(ExitCode.OK).stdout


@pytest.mark.parametrize("flag", ["--dry-run", "--dry-run=server"])
def test_a_dry_run_of_the_server_asks_it(command: Command, tiny: Lab, flag: str) -> None:
    assert '"type":"dry_run"' in requests(tiny, command, flag)


def test_a_dry_run_of_the_client_only_plans(command: Command, tiny: Lab) -> None:
    assert '"type":"dry_run"' not in requests(tiny, command, "--dry-run=client")
    text = command("apply", "worker-1", "--dry-run=client", lab=tiny).ends(ExitCode.OK).stdout
    assert "Dry run: nothing was changed. To check each write with the API server" in text


def test_no_dry_run_asks_for_consent(command: Command, tiny: Lab) -> None:
    command("apply", "worker-1", "--dry-run=none", lab=tiny).ends(ExitCode.DECLINED)


def test_the_hint_of_a_wrong_flag_names_the_help_of_its_command(command: Command) -> None:
    assert (
        "hint: See 'rollout apply --help' for usage."
        in command("apply", "--yes=3").ends(ExitCode.USAGE).stderr
    )


@pytest.mark.parametrize(
    ("words", "is_plan"),
    [
        (["web.plan"], True),
        (["plans/web"], True),
        (["web.json"], True),
        (["worker-1"], False),
        (["ip-10-0-0-1.ec2.internal"], False),
        (["node/worker-1"], False),
        (["worker-1,worker-2"], False),
        (["worker-1", "worker-2"], False),
        ([], False),
    ],
)
def test_an_argument_is_a_plan_or_names_nodes(
    words: list[str], *, is_plan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_off_plan(words) == ((Path(words[0]), ()) if is_plan else (None, words))


def test_an_argument_that_is_a_file_is_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("worker-1").touch()
    assert split_off_plan(["worker-1"]) == (Path("worker-1"), ())
