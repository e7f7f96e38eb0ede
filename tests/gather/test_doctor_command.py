"""What the doctor makes of a host's answer, of rights and of the lock."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rollout.adapters.kube.api import connect
from rollout.errors import ApiError
from rollout.gather.cluster.rights import has_right, missing_rights, plan_rights
from rollout.gather.doctor.checks import Check, CheckName, Verdict
from rollout.gather.doctor.cluster import memory_checks
from rollout.gather.doctor.hosts import host_checks
from rollout.gather.hosts.probe import parse_probe
from rollout.gather.hosts.probe_command import MARKER, Probe
from rollout.gather.hosts.sudo import wants_password
from rollout.model.host import (
    Host,
    HostFacts,
    RollbackAccess,
    UpdateOperation,
    UpdateStanding,
    UpdateState,
    UpdateStatus,
)
from rollout.model.memory import Memory
from rollout.model.rivals import STOPPED_BY_SETTING, SelfReboot
from rollout.model.update_checks import CheckState, UnitState
from rollout.ports import CommandResult
from tests.scripted_api import Kubeconfig, scripted

NEWER = "4152.2.0"
GOOD_ENGINE = UnitState("loaded", "active", "enabled")


GOOD_LOCKSMITH = UnitState("masked", "inactive", "masked")


FACTS = HostFacts(
    host=Host("worker-1", "192.0.2.1"),
    update=UpdateStatus(UpdateOperation.IDLE),
    os_id="flatcar",
    running_version="4081.2.0",
    group="stable",
    boot_id="b",
    machine_id="m",
    locksmithd_active=False,
    may_reboot=True,
)


def answer(engine: str, locksmithd: str) -> str:
    boot_id = "0b1c2d3e-0000-4000-8000-000000000001"
    units = f"{MARKER} update-engine\n{engine}\n{MARKER} locksmithd\n{locksmithd}"
    return f"welcome\n{MARKER} boot-id\n{boot_id}\n{units}\n{MARKER} end\n"


def found(engine: UnitState, locksmithd: UnitState) -> dict[CheckName, Check]:
    facts = replace(FACTS, engine_unit=engine, locksmithd_unit=locksmithd)
    return {check.check: check for check in host_checks("worker-1", facts)}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("WantedBy=multi-user.target\r", True), ("WantedBy=\r", False), ("", False)],
)
def test_who_wants_a_unit_is_read(line: str, wanted: bool) -> None:  # noqa: FBT001 - a row of the table
    text = answer(f"LoadState=loaded\nActiveState=active\nUnitFileState=disabled\n{line}", "")
    facts = parse_probe(FACTS.host, CommandResult(0, text, ""), Probe(for_doctor=True))
    assert isinstance(facts, HostFacts)
    assert facts.engine_unit == UnitState("loaded", "active", "disabled", wanted=wanted)
    assert facts.locksmithd_unit == UnitState()


def test_what_kept_systemd_from_telling_is_told_safely() -> None:
    said = CommandResult(
        0, answer("", ""), f"{MARKER} update-engine\nFailed to connect to bus\x1b[0m\n"
    )
    facts = parse_probe(FACTS.host, said, Probe(for_doctor=True))
    assert isinstance(facts, HostFacts)
    (check,) = [one for one in host_checks("worker-1", facts) if "units" in one.message]
    assert check.check == CheckName.UPDATE_ENGINE
    assert check.verdict == Verdict.WARN
    assert "Failed to connect to bus" in check.message
    assert check.message.isprintable()


@pytest.mark.parametrize(
    ("engine", "verdict", "fix"),
    [
        (GOOD_ENGINE, Verdict.PASS, ""),
        (UnitState("loaded", "active", "disabled"), Verdict.WARN, "systemctl enable update-engine"),
        (UnitState("loaded", "active", "disabled", wanted=True), Verdict.PASS, ""),
        (UnitState("loaded", "failed", "enabled"), Verdict.FAIL, "enable --now"),
        (UnitState("masked", "inactive", "masked"), Verdict.FAIL, "unmask update-engine"),
        (
            UnitState("masked", "inactive", "masked-runtime"),
            Verdict.FAIL,
            "unmask --runtime update-engine",
        ),
        (UnitState("not-found", "inactive", ""), Verdict.FAIL, "--exclude"),
        (UnitState(), Verdict.WARN, "systemctl status"),
    ],
)
def test_update_engine_has_to_be_unmasked_enabled_and_running(
    engine: UnitState, verdict: Verdict, fix: str
) -> None:
    check = found(engine, GOOD_LOCKSMITH)[CheckName.UPDATE_ENGINE]
    assert check.verdict is verdict
    assert fix in str(check.fix)


@pytest.mark.parametrize("rival", SelfReboot)
def test_a_host_that_reboots_by_itself_is_stopped_by_a_command_or_a_setting(
    rival: SelfReboot,
) -> None:
    facts = replace(FACTS, reboots_itself=(rival,))
    (check,) = [one for one in host_checks("worker-1", facts) if one.check is CheckName.RIVAL]
    has_command = bool(check.fix.commands)
    assert has_command is (rival not in STOPPED_BY_SETTING)
    assert has_command is not bool(check.fix.text)


@pytest.mark.parametrize("denied", [False, True])
def test_the_command_for_an_unreadable_memory_depends_on_why(denied: bool) -> None:  # noqa: FBT001 - a row of the table
    memory = Memory(why_unreadable="it cannot be read", denied=denied)
    (check,) = memory_checks(memory, "kube-system/node-rollout-memory")
    command = "rollout manifests roles" if denied else "rollout release --all"
    assert check.fix.commands == (command,)


WORKING = UpdateStanding(
    UpdateState.UP_TO_DATE, NEWER, checks=CheckState.WORKING, check_unit="update-engine"
)
LAGGING = replace(WORKING, state=UpdateState.BEHIND, behind=True)


@pytest.mark.parametrize(
    ("standing", "verdict", "fix"),
    [
        (WORKING, Verdict.PASS, ""),
        (replace(WORKING, checks=CheckState.STALE), Verdict.WARN, "journalctl -u update-engine"),
        (
            replace(WORKING, checks=CheckState.STALE, check_unit="rpm-ostreed-automatic.timer"),
            Verdict.WARN,
            "sudo rpm-ostree upgrade --check",
        ),
        (
            replace(WORKING, checks=CheckState.FAILED, check_unit="rpm-ostreed-automatic.service"),
            Verdict.WARN,
            "journalctl -u rpm-ostreed-automatic.service",
        ),
        (
            replace(WORKING, checks=CheckState.MASKED, check_unit="zincati"),
            Verdict.WARN,
            "unmask zincati",
        ),
        (
            replace(WORKING, checks=CheckState.DISABLED, check_unit="zincati"),
            Verdict.WARN,
            "/etc/zincati/config.d",
        ),
        (
            replace(
                WORKING, checks=CheckState.FAILED, check_unit="bootc-fetch-apply-updates.service"
            ),
            Verdict.WARN,
            "sudo bootc upgrade --check",
        ),
        (LAGGING, Verdict.WARN, "rollout check-update"),
        (replace(LAGGING, check_unit="zincati"), Verdict.WARN, "list-timers"),
        (replace(LAGGING, state=UpdateState.UPDATING), Verdict.PASS, ""),
        (replace(LAGGING, checks=CheckState.STALE), Verdict.WARN, "journalctl"),
    ],
)
def test_a_host_has_to_look_for_updates_and_to_find_them(
    standing: UpdateStanding, verdict: Verdict, fix: str
) -> None:
    checks = [
        check
        for check in host_checks("worker-1", FACTS, standing)
        if check.check is CheckName.UPDATE_CHECK
    ]
    assert checks[-1].verdict is verdict
    assert fix in str(checks[-1].fix)


@pytest.mark.parametrize(
    ("access", "verdict"),
    [
        (None, None),
        (RollbackAccess(), Verdict.PASS),
        (RollbackAccess("core cannot run `sudo -n bootc rollback`", "Allow it"), Verdict.WARN),
    ],
)
def test_a_host_that_a_rollback_would_leave_out_is_warned_of(
    access: RollbackAccess | None, verdict: Verdict | None
) -> None:
    checks = host_checks("worker-1", replace(FACTS, rollback_access=access))
    found = [check for check in checks if check.check is CheckName.ROLLBACK]
    assert [check.verdict for check in found] == ([verdict] if verdict else [])
    if access and access.refusal:
        assert access.refusal in found[0].message
        assert str(found[0].fix) == access.fix


START = """Matching Defaults entries for ops on node:
    env_reset, mail_badpass,
    secure_path=/usr/local/sbin\\:/usr/local/bin, use_pty

User ops may run the following commands on node:
"""


NARROW = """    (root) NOPASSWD: /usr/bin/systemctl reboot, /usr/bin/update_engine_client
        -status, /usr/bin/update_engine_client -check_for_update
"""


PRICED = "    (ALL : ALL) ALL\n"


@pytest.mark.parametrize(
    "rules",
    [
        PRICED,
        PRICED + "    (ALL) NOPASSWD: /usr/bin/ls\n",
        NARROW + PRICED,
        PRICED + "    (postgres) NOPASSWD: ALL\n    (ALL, !root) NOPASSWD: ALL\n",
        PRICED + "    (ALL) NOPASSWD: /usr/bin/systemctl restart a\\, reboot, SETENV:\n"
        "        /usr/bin/systemctl\n        poweroff\n",
        "    (ALL) NOPASSWD: /usr/bin/ls, PASSWD: /usr/bin/systemctl re*\n",
        "    (root) NOPASSWD: ALL\n    (root) CWD=/tmp PASSWD: /usr/bin/\n",
    ],
)
def test_a_price(rules: str) -> None:
    assert wants_password(START + rules, "systemctl reboot")
    assert wants_password((START + rules).replace("\n", "\r\n"), "systemctl reboot")


@pytest.mark.parametrize(
    "rules",
    [
        "    (ALL) NOPASSWD: ALL\n",
        NARROW,
        PRICED + NARROW,
        PRICED + "    (root) NOPASSWD: /usr/bin/ls, SETENV: /bin/systemctl\n",
        PRICED + "    (root : adm) TIMEOUT=60 NOPASSWD: NOEXEC: /usr/bin/systemctl re*\n",
        PRICED + "    (root) PASSWD: /bin/ls, NOPASSWD: /usr/bin/\n",
        # what is not read here is left to sudo's own word
        PRICED + "    (root) NOPASSWD: /usr/bin/systemctl ^reboot$\n",
        PRICED + "    (root) /usr/bin/ls\n".replace("(root)", "!authenticate (root)"),
        "    (root) NOPASSWD: /usr/bin/ls\n",
        "",
        "    (" * 100_000,
        "    (root) " + "A:" * 100_000,
    ],
)
def test_no_price(rules: str) -> None:
    assert not wants_password(START + rules, "systemctl reboot")
    assert not wants_password(rules, "systemctl reboot")


def test_a_server_that_does_not_say_is_an_error(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.answer(403, b"no")) as server:
        api = connect(Kubeconfig(server.url).write(tmp_path / "kubeconfig"), None)
        with pytest.raises(ApiError):
            missing_rights(plan_rights(), lambda right: has_right(api, right))
