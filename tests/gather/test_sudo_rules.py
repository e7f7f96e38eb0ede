"""The price of a reboot, out of lists as sudo 1.9 prints them."""

import pytest

from rollout.gather.hosts.sudo import wants_password

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
    assert wants_password(START + rules)
    assert wants_password((START + rules).replace("\n", "\r\n"))


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
    assert not wants_password(START + rules)
    assert not wants_password(rules)
