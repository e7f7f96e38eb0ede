"""Files that operators name: what a file is, who may write it, and what nobody has written by hand.

The mishaps: a named pipe in place of a file hangs an unattended pass for ever; a folder that
anybody may write lets anybody replace the file in it; a text of ten thousand brackets ends as an
internal error.
"""

import grp
import json
import os
import pwd
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.adapters import input_trust
from rollout.adapters.ansible.inventory import read_inventory
from rollout.adapters.ansible.playbook_run import AnsiblePlaybooks
from rollout.adapters.ansible.settings import AnsibleSettings, check_inventory, check_playbook
from rollout.adapters.evidence_files import read_documents, sign, why_not_signed
from rollout.adapters.input_files import Trust, open_input, read_input
from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.keys import KeyRing
from rollout.adapters.ssh.known_hosts import read_known_hosts_text
from rollout.errors import ExitCode, InputError, RolloutError
from rollout.execution.base.gate_ports import Occasion
from rollout.gather.inventory import SshDefaults
from tests.ended import Ended, invoked
from tests.scripted_api import Kubeconfig

ANSIBLE = AnsibleSettings(environment={})
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


def as_authority(home: Path, file: Path) -> Ended:
    config = json.loads((home / "config").read_text())
    config["clusters"][0]["cluster"] |= {
        "server": "https://127.0.0.1:1",
        "certificate-authority": str(file),
    }
    (home / "config").write_text(json.dumps(config))
    return run(home, "status")


def as_manifests_known_hosts(home: Path, file: Path) -> Ended:
    return run(home, "manifests", "--image", "x/y:1", "--known-hosts", str(file))


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


OBEYED: dict[Use, int] = {
    as_config: ExitCode.USAGE,
    as_calendar: ExitCode.USAGE,
    as_kubeconfig: ExitCode.ERROR,
    as_plan: ExitCode.ERROR,
    as_authority: ExitCode.ERROR,
    as_manifests_known_hosts: ExitCode.ERROR,
}


@pytest.mark.parametrize("use", OBEYED)
def test_what_any_user_may_write_is_not_obeyed(use: Use, home: Path) -> None:
    file = home / "open"
    file.write_text("")
    file.chmod(0o666)
    assert_refused(
        use(home, file),
        OBEYED[use],
        f"it is not trusted, because others can write to {file} (mode 0666)",
        f"hint: Run: chmod o-w {file}",
    )


def read_as_inventory(file: Path) -> object:
    return read_inventory(file, ANSIBLE, SshDefaults(), by_ansible=False)


def read_as_playbook(file: Path) -> object:
    return AnsiblePlaybooks(ANSIBLE, {Occasion.PRE_REBOOT: file})


def read_as_ansible_cfg(file: Path) -> None:
    AnsibleSettings(environment={"ANSIBLE_CONFIG": str(file)}).check_configuration()


def read_as_known_hosts_of_ansible(file: Path) -> None:
    replace(ANSIBLE, known_hosts=file).check_configuration()


def read_as_ssh_config(file: Path) -> object:
    return with_ssh_config({}, file)


def read_as_key(file: Path) -> object:
    return KeyRing().load(str(file))


def read_as_signing_key(file: Path) -> object:
    return sign(b"evidence", file)


@pytest.mark.parametrize(
    "read",
    [
        read_as_inventory,
        read_as_playbook,
        read_as_ansible_cfg,
        read_as_known_hosts_of_ansible,
        read_known_hosts_text,
        read_as_ssh_config,
        read_as_key,
        read_as_signing_key,
    ],
)
def test_what_makes_rollout_run_or_trust_something_is_the_operators(
    read: Callable[[Path], object], home: Path
) -> None:
    folder = shared_folder(home, 0o777)
    inner = folder / "inner"
    inner.mkdir(mode=0o755)
    (home / "link").symlink_to(inner)
    for file in (folder / "file", inner / "file", home / "link" / "file"):
        file.write_text("")
        file.chmod(0o600)
        with pytest.raises(RolloutError, match=f"others can write to the directory {folder} "):
            read(file)
    folder.chmod(0o755)
    file.chmod(0o666)
    words = rf"others can write to {file.resolve()} \(mode 0666\)"
    with pytest.raises(RolloutError, match=words) as refused:
        read(file)
    assert refused.value.hint == f"Run: chmod o-w {file.resolve()}"


def test_the_hint_of_a_refusal_is_what_its_reader_can_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The culprit may be a folder of someone else, as in a checkout of GitLab."""
    folder = shared_folder(home, 0o777)
    file = folder / "a file"
    file.write_text("")
    pass_it = f"; or pass its content: --config /dev/stdin < '{file}'"
    assert_refused(as_config(home, file), ExitCode.USAGE, f"Run: chmod o-w {folder}{pass_it}")
    with pytest.raises(RolloutError) as refused:
        read_as_playbook(file)
    assert refused.value.hint == f"Run: chmod o-w {folder}"
    os.chown(folder, 65534, 65534)
    folder.chmod(0o775)
    monkeypatch.setattr("os.geteuid", lambda: 1234)
    with pytest.raises(RolloutError) as refused:
        read_as_playbook(file)
    assert refused.value.hint == (
        "Use a copy in a directory that only you can write to, or have nobody run:"
        f" chmod g-w {folder}"
    )


VARIABLES = ("group_vars/all.yaml", "host_vars/a/b.yaml")
CODE = ("library/ping.py", "roles/a/main.yaml", "collections/a/b.py", "doc_fragments/a.py")


@pytest.mark.parametrize("beside", [*VARIABLES, *CODE, "filter_plugins/a.py"])
def test_what_ansible_loads_beside_an_inventory_or_playbook_is_the_operators(
    beside: str, home: Path, tmp_path: Path
) -> None:
    """An inventory has no plugins or roles, so those beside it may be anyone's."""
    file = home / "hosts.yaml"
    file.write_text("[]")
    loaded = home / beside
    loaded.parent.mkdir(parents=True)
    loaded.write_text("")
    check_playbook(file)
    check_inventory(home, tmp_path)
    for writable, mode in ((loaded, 0o666), (loaded.parent, 0o777)):
        before = writable.stat().st_mode
        writable.chmod(mode)
        words = f"others can write to .*{writable.name}"
        for check in (partial(check_playbook, file), partial(check_inventory, home, tmp_path)):
            with pytest.raises(PermissionError, match=words):
                check()
        if beside in VARIABLES:
            with pytest.raises(PermissionError, match=words):
                check_inventory(file, tmp_path)
        else:
            check_inventory(file, home)
        writable.chmod(before)
    (home / ".#hosts.yaml").symlink_to("nobody@nowhere:1")
    check_inventory(home, tmp_path)


def test_variables_in_the_current_folder_are_the_operators(home: Path, tmp_path: Path) -> None:
    """ansible-inventory loads them, as if a playbook were there; they can name programs."""
    inventory = home / "hosts"
    inventory.write_text("a\n")
    planted = tmp_path / "current" / "group_vars" / "all.yaml"
    planted.parent.mkdir(parents=True)
    planted.write_text("is_loaded: true\n")
    settings = AnsibleSettings(environment={}, folder=tmp_path / "current")
    read = partial(read_inventory, inventory, settings, SshDefaults(), by_ansible=False)
    assert read().hosts
    planted.chmod(0o666)
    with pytest.raises(RolloutError, match="it is not trusted") as refused:
        read()
    assert refused.value.hint == f"Run: chmod o-w {planted}"


def test_own_ssh_configuration_belongs_to_the_user_as_for_ssh(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    file = home / ".ssh" / "config"
    file.parent.mkdir()
    file.write_text("")
    with_ssh_config({}, None)
    os.chown(file, 65534, 65534)
    with pytest.raises(InputError, match=f"it is not trusted, because {file} belongs to nobody"):
        with_ssh_config({}, None)
    with_ssh_config({}, file)


@pytest.mark.parametrize("members", [[], ["ann"]])
def test_a_home_with_a_private_group_may_be_writable_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[str]
) -> None:
    """As with umask 002 where each user has a group of their own."""
    folder = tmp_path / "ann"
    folder.mkdir()
    file = folder / "config"
    file.write_text("kept")
    for entry, mode in ((folder, 0o775), (file, 0o664)):
        os.chown(entry, 1234, 1234)
        entry.chmod(mode)
    with pytest.raises(PermissionError):
        read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)
    ann = pwd.struct_passwd(("ann", "x", 1234, 1234, "", str(folder), "/bin/sh"))
    group = ("ann", "x", 1234, members)
    monkeypatch.setattr("pwd.getpwuid", lambda _uid: ann)
    monkeypatch.setattr("grp.getgrgid", lambda _gid: grp.struct_group(group))
    assert read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS) == b"kept"
    members.append("bob")
    with pytest.raises(PermissionError):
        read_input(file, trust=Trust.NOT_WRITABLE_BY_OTHERS)


def test_a_link_to_the_null_device_in_a_shared_folder_is_not_obeyed(home: Path) -> None:
    """It would take the settings away."""
    link = shared_folder(home, 0o777) / "rollout.toml"
    link.symlink_to(os.devnull)
    assert_refused(as_config(home, link), ExitCode.USAGE, "others can write to the directory")


def shared_folder(home: Path, mode: int) -> Path:
    folder = home / "shared"
    folder.mkdir()
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("use", OBEYED)
def test_what_lies_in_a_folder_where_any_user_may_replace_it_is_not_obeyed(
    use: Use, home: Path
) -> None:
    folder = shared_folder(home, 0o777)
    file = folder / "own"
    file.write_text("")
    assert_refused(use(home, file), OBEYED[use], f"others can write to the directory {folder}")


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
    assert read_input(direct, trust=Trust.NOT_WRITABLE_BY_OTHERS) == b"kept"
    by_others = tmp_path / "shared" / "link"
    by_others.symlink_to(tmp_path / "own" / "settings")
    (tmp_path / "first").symlink_to("shared/link")
    (tmp_path / "shared").chmod(0o777)
    for link in (by_others, tmp_path / "first"):
        with pytest.raises(PermissionError, match=r"others can write to the directory .*shared"):
            read_input(link, trust=Trust.NOT_WRITABLE_BY_OTHERS)


def test_a_configmap_in_a_pod_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet mounts it read-only, in a folder of mode 0777, as links."""
    folder = tmp_path / "mounted"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "settings").write_text("kept")
    (folder / "..data").symlink_to("..2026")
    (folder / "settings").symlink_to("..data/settings")
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        read_input(folder / "settings", trust=Trust.NOT_WRITABLE_BY_OTHERS)
    monkeypatch.setattr(input_trust, "_is_read_only", lambda _place: True)
    assert read_input(folder / "settings", trust=Trust.NOT_WRITABLE_BY_OTHERS) == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts volumes")
def test_a_volume_that_everyone_may_write_is_the_operators(tmp_path: Path) -> None:
    """As an emptyDir; what somebody makes in it is not."""
    volume = tmp_path / "volume"
    volume.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "mode=0777", "none", str(volume)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (volume / "settings").write_text("kept")
        assert read_input(volume / "settings", trust=Trust.NOT_WRITABLE_BY_OTHERS) == b"kept"
        (volume / "shared").mkdir()
        (volume / "shared").chmod(0o777)
        (volume / "shared" / "settings").write_text("kept")
        with pytest.raises(PermissionError, match="others can write to the directory"):
            read_input(volume / "shared" / "settings", trust=Trust.NOT_WRITABLE_BY_OTHERS)
        os.chown(volume / "settings", 12345, 12345)
        with pytest.raises(PermissionError, match="belongs to user 12345"):
            read_input(volume / "settings", trust=Trust.NOT_WRITABLE_BY_OTHERS)
    finally:
        subprocess.run(["umount", str(volume)], check=True)


def test_what_the_shell_hands_over_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"by a pipe")
    os.close(writer)
    assert read_input(Path(f"/dev/fd/{reader}"), trust=Trust.NOT_WRITABLE_BY_OTHERS) == b"by a pipe"
    os.close(reader)
    assert read_input(Path(os.devnull), trust=Trust.NOT_WRITABLE_BY_OTHERS) == b""


def test_a_token_file_that_is_a_named_pipe_is_refused_at_once(home: Path) -> None:
    os.mkfifo(home / "pipe")
    config = json.loads((home / "config").read_text())
    config["users"][0]["user"] = {"tokenFile": "pipe"}
    (home / "config").write_text(json.dumps(config))
    assert_refused(run(home, "status"), ExitCode.ERROR, "it is a named pipe, not a regular file")


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
    assert "its signature is not by" in why_not_signed(document, tmp_path / "signers", "staging")
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
