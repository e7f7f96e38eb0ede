"""Files that operators name: what a file is, who may write it, and what nobody has written by hand.

The mishaps: a named pipe in place of a file hangs an unattended pass for ever; a folder that
anybody may write lets anybody replace the file in it; a text of ten thousand brackets ends as an
internal error.
"""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.adapters import local_files
from rollout.adapters.ansible.playbook_run import AnsiblePlaybooks
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.evidence_files import read_documents, why_not_signed
from rollout.adapters.input_files import Trust, open_input, read_input
from rollout.errors import ExitCode, InputError
from rollout.execution.base.gate_ports import Occasion
from tests.ended import Ended, invoked
from tests.scripted_api import Kubeconfig

DEEP = 100_000
DIGITS = "9" * 5000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    Kubeconfig("http://127.0.0.1:1").write(made / "config")
    return made


def run(home: Path, *arguments: str) -> Ended:
    return invoked(home, {"KUBECONFIG": str(home / "config")}, arguments)


def as_config(home: Path, file: Path) -> Ended:
    return run(home, "history", "--config", str(file))


def as_kubeconfig(home: Path, file: Path) -> Ended:
    return run(home, "status", "--kubeconfig", str(file))


def as_plan(home: Path, file: Path) -> Ended:
    return run(home, "apply", str(file))


def as_report(home: Path, file: Path) -> Ended:
    return run(home, "report", f"{file.parent}/{file.name}")


def as_calendar(home: Path, file: Path) -> Ended:
    return run(home, "plan", "--set", f"gates.calendar={file}")


def as_inventory(home: Path, file: Path) -> Ended:
    return run(home, "inventory", "-i", str(file))


def as_scenario(home: Path, file: Path) -> Ended:
    return run(home, "lab", "up", "--scenario", str(file))


def as_snapshot(home: Path, file: Path) -> Ended:
    return run(home, "lab", "up", "--like", str(file))


Use = Callable[[Path, Path], Ended]


def as_scenario_like(home: Path, file: Path) -> Ended:
    scenario = home / "like.yaml"
    scenario.write_text(f"description: a copy\nnodes: [{{prefix: w, count: 1}}]\nlike: {file}\n")
    return as_scenario(home, scenario)


USES: dict[Use, int] = {
    as_config: ExitCode.USAGE,
    as_calendar: ExitCode.USAGE,
    as_kubeconfig: ExitCode.ERROR,
    as_plan: ExitCode.ERROR,
    as_report: ExitCode.ERROR,
    as_scenario: ExitCode.ERROR,
    as_snapshot: ExitCode.ERROR,
    as_scenario_like: ExitCode.ERROR,
}
named_by_use = pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)


def assert_refused(ended: Ended, code: int, *words: str) -> None:
    assert ended.code == code, ended.stderr
    assert ended.stderr.startswith("rollout: error: "), ended.stderr
    assert "bug" not in ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr


@named_by_use
def test_a_named_pipe_is_refused_at_once(use: Use, home: Path) -> None:
    pipe = home / "pipe.ics"
    os.mkfifo(pipe)
    assert_refused(use(home, pipe), USES[use], "it is a named pipe, not a regular file")


@named_by_use
def test_a_device_is_refused_at_once(use: Use, home: Path) -> None:
    assert_refused(use(home, Path("/dev/zero")), USES[use], "it is a device, not a regular file")


@named_by_use
def test_a_socket_is_refused_at_once(use: Use, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(home / "line"))
        assert_refused(use(home, home / "line"), USES[use], "it is a socket, not a regular file")


@pytest.mark.parametrize("use", [as_config, as_calendar, as_kubeconfig])
def test_what_any_user_may_write_is_not_obeyed(use: Use, home: Path) -> None:
    file = home / "open"
    file.write_text("")
    file.chmod(0o666)
    assert_refused(
        use(home, file),
        USES[use],
        f"it is not trusted, because others can write to {file} (mode 0666)",
    )


def shared_folder(home: Path, mode: int) -> Path:
    folder = home / "shared"
    folder.mkdir()
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("use", [as_config, as_calendar])
def test_what_lies_in_a_folder_where_any_user_may_replace_it_is_not_obeyed(
    use: Use, home: Path
) -> None:
    folder = shared_folder(home, 0o777)
    file = folder / "own"
    file.write_text("")
    assert_refused(use(home, file), USES[use], f"others can write to the directory {folder}")


def test_in_a_sticky_folder_only_files_of_the_user_are_obeyed(home: Path) -> None:
    """Others can lay a file there, but cannot replace the user's."""
    file = shared_folder(home, 0o1777) / "rollout.toml"
    file.write_text("")
    assert as_config(home, file).code == 0
    os.chown(file, 65534, 65534)
    words = ("rollout.toml belongs to nobody, in a directory that others can write to",)
    assert_refused(as_config(home, file), ExitCode.USAGE, *words)


def test_a_named_file_may_belong_to_another_user(home: Path) -> None:
    """As one that is mounted into a container does: the operator has chosen it."""
    folder = shared_folder(home, 0o755)
    file = folder / "rollout.toml"
    file.write_text("")
    for place in (folder, file):
        os.chown(place, 1234, 1234)
    assert as_config(home, file).code == 0


def test_a_link_is_followed_and_its_folders_are_judged(tmp_path: Path) -> None:
    for name in ("own", "shared"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "settings").write_text("kept")
    direct = tmp_path / "own" / "link"
    direct.symlink_to("settings")
    assert read_input(direct, trust=Trust.OPERATOR) == b"kept"
    by_others = tmp_path / "shared" / "link"
    by_others.symlink_to(tmp_path / "own" / "settings")
    (tmp_path / "first").symlink_to("shared/link")
    (tmp_path / "shared").chmod(0o777)
    for link in (by_others, tmp_path / "first"):
        with pytest.raises(PermissionError, match=r"others can write to the directory .*shared"):
            read_input(link, trust=Trust.OPERATOR)


def test_a_configmap_in_a_pod_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet mounts it read-only, in a folder of mode 0777, as links."""
    folder = tmp_path / "mounted"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "settings").write_text("kept")
    (folder / "..data").symlink_to("..2026")
    (folder / "settings").symlink_to("..data/settings")
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        read_input(folder / "settings", trust=Trust.OPERATOR)
    monkeypatch.setattr(local_files, "_is_read_only", lambda _place: True)
    assert read_input(folder / "settings", trust=Trust.OPERATOR) == b"kept"


def test_what_the_shell_hands_over_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"by a pipe")
    os.close(writer)
    assert read_input(Path(f"/dev/fd/{reader}"), trust=Trust.OPERATOR) == b"by a pipe"
    os.close(reader)
    assert read_input(Path(os.devnull), trust=Trust.OPERATOR) == b""


def test_a_token_file_that_is_a_named_pipe_is_refused_at_once(home: Path) -> None:
    os.mkfifo(home / "pipe")
    config = json.loads((home / "config").read_text())
    config["users"][0]["user"] = {"tokenFile": "pipe"}
    (home / "config").write_text(json.dumps(config))
    assert_refused(run(home, "status"), ExitCode.ERROR, "it is a named pipe, not a regular file")


def test_a_playbook_that_any_user_may_write_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "before.yaml"
    file.write_text("[]")
    file.chmod(0o666)
    with pytest.raises(InputError, match=r"it is not trusted, because others can write to "):
        AnsiblePlaybooks(
            AnsibleSettings(folder=tmp_path, environment={}), {Occasion.PRE_REBOOT: file}
        )


def test_an_input_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"12345")
    assert read_input(file, most=5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        read_input(file, most=4)
    with open_input(file) as stream:
        assert stream.readline() == b"12345"


def test_signers_that_others_may_replace_prove_nothing(tmp_path: Path) -> None:
    for name in ("evidence.json", "evidence.json.sig", "signers"):
        (tmp_path / name).write_text("text")
    (document,) = read_documents(str(tmp_path / "evidence.json"), None, "")  # type: ignore[arg-type]
    assert "its signature is not one of" in why_not_signed(
        document, tmp_path / "signers", "staging"
    )
    tmp_path.chmod(0o777)
    why = why_not_signed(document, tmp_path / "signers", "staging")
    assert f"others can write to the directory {tmp_path}" in why
    (tmp_path / "signers").unlink()
    os.mkfifo(tmp_path / "signers")
    assert "it is a named pipe" in why_not_signed(document, tmp_path / "signers", "staging")


def test_evidence_that_is_a_named_pipe_is_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "evidence.json")
    (document,) = read_documents(str(tmp_path), None, "")  # type: ignore[arg-type]
    assert document.problem == "it is a named pipe, not a regular file"


SCENARIO = "description: strange\nnodes: [{prefix: w, count: 1}]\n"
TEXTS: list[tuple[Use, int, str]] = [
    (as_config, ExitCode.USAGE, "a = " + "[" * DEEP),
    (as_config, ExitCode.USAGE, "[waves]\nmax-unavailable = " + "[" * 200 + "]" * 200),
    (as_config, ExitCode.USAGE, "a = " + "{b = " * 5000),
    (as_config, ExitCode.USAGE, ".".join("a" * 5000) + " = 1"),
    (as_config, ExitCode.USAGE, "[waves]\nmax-failures = " + DIGITS),
    (as_config, ExitCode.USAGE, f"[drain]\ntimeout = '{DIGITS}h'"),
    (as_config, ExitCode.USAGE, f"[waves]\nmax-unavailable = '{DIGITS}%'"),
    (as_config, ExitCode.USAGE, f"[gates]\nwindow = ['{DIGITS}:00 1h']"),
    (as_config, ExitCode.USAGE, f"[gates]\nwindow = ['02:00 {DIGITS}h']"),
    (as_config, ExitCode.USAGE, f"[gates]\nfreeze = ['{DIGITS}-01-01']"),
    (as_config, ExitCode.USAGE, f"[ssh]\nport = {DIGITS[:4000]}"),
    *(
        (as_config, ExitCode.USAGE, f"[drain]\ntimeout = {value}")
        for value in ("inf", "nan", "-inf", "1e400")
    ),
    *(
        (as_config, ExitCode.USAGE, f"[drain]\ntimeout = {value}")
        for value in ("2026-13-45", "25:61:61", "0000-01-01")
    ),
    *(
        (as_kubeconfig, ExitCode.ERROR, text)
        for text in (
            "a: " + "[" * DEEP,
            "a: " + "[" * 900 + "]" * 900,
            "\n".join(" " * depth + "a:" for depth in range(2000)),
            f"current-context: {DIGITS}",
            "current-context: 2026-13-45",
            "current-context: 1e400",
            "current-context: !!timestamp soon",
            "current-context: !!int ''",
            "current-context: !!float soon",
            "contexts: [&a [*a, *a]]",
            "? [a]\n: 1",
        )
    ),
    *(
        (as_scenario, ExitCode.ERROR, text)
        for text in ("a: " + "[" * 900 + "]" * 900, "nodes: 2026-13-45", f"nodes: {DIGITS}")
    ),
    *(
        (use, ExitCode.ERROR, text)
        for use in (as_plan, as_snapshot)
        for text in (
            "[" * DEEP,
            '{"a":' * DEEP,
            f'{{"format_version": {DIGITS}}}',
            '{"a": 1e999}',
            '{"a": NaN}',
            "\ud800",
        )
    ),
    *(
        (as_report, ExitCode.ERROR, text)
        for text in ("[" * DEEP, '{"a":' * DEEP, f'{{"version": {DIGITS}}}')
    ),
    *(
        (as_scenario, ExitCode.ERROR, f"{SCENARIO}{text}")
        for text in (
            "host_timings: {boot: .nan}",
            "host_timings: {boot: .inf}",
            "host_timings: {boot: -1}",
            "host_timings: {boot: 1.0e+300}",
            f"host_timings: {{boot: {DIGITS[:400]}}}",
            "timings: {kubelet_ready: .nan}",
            "clock_ahead: .inf",
            "clock_ahead: 1.0e+300",
            "api_faults: [{answer: slow, delay: .nan}]",
            "api_faults: [{answer: slow, probability: .nan}]",
            "workloads: [{kind: Deployment, name: web, replicas_per_worker: .inf}]",
            "workloads: [{kind: Deployment, name: web, copies_per_worker: 1.0e+300}]",
            "hosts: [{select: {}, faults: {boot_seconds: .nan}}]",
        )
    ),
    *((as_inventory, ExitCode.ERROR, text) for text in ("all: " + "[" * 900 + "]" * 900,)),
    *(
        (as_calendar, ExitCode.USAGE, text)
        for text in ("BEGIN:VCALENDAR\n" * DEEP, "BEGIN:VCALENDAR" + "A" * DEEP)
    ),
]


@pytest.mark.parametrize(
    ("use", "code", "text"), TEXTS, ids=lambda value: getattr(value, "__name__", str(value)[:24])
)
def test_a_text_that_nobody_writes_is_told_as_any_other_mistake(
    use: Use, code: int, text: str, home: Path
) -> None:
    file = home / "strange.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    assert_refused(use(home, file), code)
