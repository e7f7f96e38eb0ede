"""What Ansible's events mean: recorded from ansible-core 2.19 with OpenSSH's client, and cut down."""

from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.ansible.answers import (
    HostAnswer,
    parse_event,
    split_messages,
    unreachable_error,
    why_inventory_failed,
)
from rollout.adapters.ansible.inventory import (
    has_safe_names,
    write_inventory,
    write_variables,
)
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.errors import (
    HostKeyError,
    SshAuthError,
    SshBrokenError,
    SshError,
    SshTimeoutError,
    SshUnreachableError,
)
from rollout.model.host import Host, HostKeyChecking
from rollout.ports import CommandResult


def event(kind: str, **result: Any) -> dict[str, Any]:
    data = {"host": "worker-1", "task_action": "ansible.builtin.raw", "task": "Ask", "res": result}
    return {"event": kind, "event_data": data}


def test_an_answer_with_the_clients_own_chatter_left_away() -> None:
    found = parse_event(
        event(
            "runner_on_ok",
            rc=3,
            stdout="one\r\ntwo\r\n",
            stderr="asked\r\nShared connection to 127.0.0.1 closed.\r\n",
            changed=False,
        )
    )
    assert found == HostAnswer("worker-1", CommandResult(3, "one\ntwo\n", "asked\n"))


def test_the_result_of_a_command_has_its_number() -> None:
    found = parse_event(
        event("runner_item_on_ok", rc=0, stdout="", stderr="", rollout_command_number=7)
    )
    assert found == HostAnswer("worker-1", CommandResult(0, "", ""), command_number=7)


@pytest.mark.parametrize(
    "other",
    [
        {"event": "playbook_on_stats", "event_data": {"ok": {"worker-1": 1}}},
        {"event": "verbose", "stdout": "Using /etc/ansible/ansible.cfg as config file"},
        {**event("runner_on_start")},
        {
            "event": "runner_on_ok",
            "event_data": {"host": "w", "task_action": "ansible.builtin.debug", "res": {}},
        },
        event("runner_on_ok", results=[{"rc": 0}], msg="All items completed"),
    ],
)
def test_other_events_are_nobodys_answer(other: dict[str, Any]) -> None:
    assert parse_event(other) is None


SSH = "Task failed: Failed to connect to the host via ssh: "


@pytest.mark.parametrize(
    ("message", "kind", "said"),
    [
        (
            f"{SSH}ssh: connect to host 127.0.0.1 port 2: Connection refused",
            SshUnreachableError,
            "Connection refused",
        ),
        (
            f"{SSH}ssh: connect to host 192.0.2.1 port 22: Connection timed out",
            SshTimeoutError,
            "timed out",
        ),
        (f"{SSH}core@127.0.0.1: Permission denied (publickey).", SshAuthError, "Permission denied"),
        (f"{SSH}Host key verification failed.", HostKeyError, "is unknown, or has changed"),
        (
            (
                f"{SSH}@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!    "
                " @\r\n@@@@\r\nNASTY\x1b[2J"
            ),
            HostKeyError,
            "its host key has changed",
        ),
        (f"{SSH}Connection closed by 192.0.2.1 port 22", SshBrokenError, "closed by 192.0.2.1"),
        (
            f"{SSH}stdio forwarding failed\r\nConnection closed by UNKNOWN port 65535",
            SshUnreachableError,
            "stdio forwarding failed",
        ),
        ("Data could not be sent to remote host", SshUnreachableError, "Data could not be sent"),
        ("", SshUnreachableError, "no reason given"),
    ],
)
def test_why_a_host_is_not_reached(message: str, kind: type[SshError], said: str) -> None:
    error = unreachable_error("worker-1", message)
    assert type(error) is kind
    assert "worker-1" not in error.message
    assert said in error.message
    assert error.message.isprintable()
    assert error.hint


@pytest.mark.timeout(20)
def test_no_banner_takes_long_to_read() -> None:
    banner = "host key for " * 20_000
    error = unreachable_error("worker-1", f"{SSH}{banner}\nConnection refused")
    assert error.message == "Connection refused"


def test_what_is_no_answer_of_the_host() -> None:
    timed_out = event(
        "runner_on_failed",
        timedout={"frame": "…", "period": 20},
        msg="Timed out after 20 second(s).",
    )
    late = parse_event(timed_out)
    assert late is not None
    assert isinstance(late.answer, SshTimeoutError)
    assert "within 20 s" in late.answer.message
    become = parse_event(event("runner_on_failed", msg="Task failed: Missing sudo password"))
    assert become is not None
    assert type(become.answer) is SshError
    assert "Missing sudo password" in become.answer.message


# What Ansible is told, and that the user's own word counts where it should.


def settings(folder: Path, **said: object) -> AnsibleSettings:
    return AnsibleSettings(
        **{"folder": folder, "environment": {"HOME": str(folder), "PATH": "/bin"}, **said}  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("checking", "ansible", "openssh"),
    [
        (HostKeyChecking.STRICT, "True", "StrictHostKeyChecking=yes"),
        (HostKeyChecking.ACCEPT_NEW, "True", "StrictHostKeyChecking=accept-new"),
    ],
)
def test_host_keys_are_checked_as_asked(
    tmp_path: Path, checking: HostKeyChecking, ansible: str, openssh: str
) -> None:
    """ansible-runner would check none, and a user's own setting may not undo ours."""
    given = {"HOME": str(tmp_path), "ANSIBLE_HOST_KEY_CHECKING": "whatever"}
    variables = settings(tmp_path, host_key_checking=checking, environment=given).variables()
    assert variables["ANSIBLE_HOST_KEY_CHECKING"] == ansible
    assert openssh in variables["ANSIBLE_SSH_ARGS"]


def test_what_rollout_was_told_comes_before_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\nremote_user = ops\n[ssh_connection]\nssh_args = -o ControlPersist=60s\n"
    )
    variables = settings(tmp_path, known_hosts=Path("/keys"), user="core").variables(tmp_path)
    words = variables["ANSIBLE_SSH_ARGS"].split()
    assert words.index("UserKnownHostsFile=/keys") < words.index("ControlPersist=60s")
    assert "ControlMaster=no" not in words
    assert words[words.index("-F") + 1] == str(tmp_path / "ssh_config")
    assert variables["ANSIBLE_REMOTE_USER"] == "core"
    assert variables["ANSIBLE_CONFIG"] == str(tmp_path / "ansible.cfg")


def test_nothing_from_the_cluster_is_taken_for_a_template(tmp_path: Path) -> None:
    host = Host("worker-1", "{{ lookup('pipe', 'id') }}")
    written = write_inventory(tmp_path, settings(tmp_path), [host]).read_text()
    assert (
        "!unsafe \"{{ lookup('pipe', 'id') }}\"" in written
        or "!unsafe '{{ lookup(''pipe'', ''id'') }}'" in written
    )
    variables = write_variables(
        tmp_path, {"labels": {"zone": "{{ evil }}"}, "roles": ["{{ evil }}"], "few": 3}
    )
    assert variables.read_text().count("!unsafe") == 2
    assert (variables.stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize("address", ["-oProxyCommand=id", "a b", "$(id)", "a;b", "{{ a }}", ""])
def test_no_address_becomes_an_option_of_ssh(address: str) -> None:
    assert not has_safe_names(Host("worker-1", address))
    assert has_safe_names(Host("worker-1", "fe80::1%eth0"))
    assert has_safe_names(Host("worker-1", "::1"))


# What `ansible-inventory` prints of version 2.19, and of 2.15, which wraps its lines.


BY_WORLD_WRITABLE = (
    "[WARNING]: Ansible is being run in a world writable directory (/tmp), ignoring it as an"
    " ansible.cfg source. For more information see"
    " https://docs.ansible.com/ansible/devel/reference_appendices/config.html\n" * 3
)
BY_INI = """\
[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: Expected key=value, got: b

Failed to parse inventory with 'ini' plugin.

<<< caused by >>>

Failed to parse inventory: Expected key=value, got: b
Origin: /srv/hosts.ini

[ERROR]: Completely failed to parse inventory source /srv/hosts.ini
"""
BY_SCRIPT = """\
[WARNING]: Failed to parse inventory with 'script' plugin: Inventory script returned non-zero exit code 3.

Failed to parse inventory with 'script' plugin.

Standard error from inventory script:
connecting
the token has expired

[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: Expected key=value, got: x

[ERROR]: Completely failed to parse inventory source /srv/hosts
"""
WRAPPED = """\
[WARNING]:  * Failed to parse /srv/hosts.ini with ini plugin: /srv/hosts.ini:1: Expected key=value host
variable assignment, got: b
[WARNING]: Unable to parse /srv/hosts.ini as an inventory source
ERROR! Completely failed to parse inventory source /srv/hosts.ini
"""


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (BY_INI, "'ini' plugin: Failed to parse inventory: Expected key=value, got: b"),
        (
            BY_SCRIPT,
            (
                "'script' plugin: Inventory script returned non-zero exit code 3: the token has"
                " expired"
            ),
        ),
        (WRAPPED, "/srv/hosts.ini:1: Expected key=value host variable assignment, got: b"),
        ("ERROR! no vault secrets\n[WARNING]: something else\n", "ERROR! no vault secrets"),
        (
            "Traceback (most recent call last):\n  File x\nImportError: no module named yaml\n",
            "no module named yaml",
        ),
    ],
)
@pytest.mark.parametrize("before", ["", BY_WORLD_WRITABLE])
def test_why_an_inventory_is_refused_stands_at_the_end_whatever_comes_before(
    before: str, printed: str, reason: str
) -> None:
    assert why_inventory_failed(before + printed).endswith(reason)


def test_each_warning_about_an_inventory_is_told_once() -> None:
    printed = f"{BY_WORLD_WRITABLE}[WARNING]: Invalid characters in group names\nare not replaced\n"
    messages = split_messages(printed)
    assert len(messages) == 2
    assert messages[-1] == "[WARNING]: Invalid characters in group names are not replaced"
