"""All programs of a simulated host, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.commands import basic, condition, text, users
from rollout.lab.hosts.commands.apt import apt_config
from rollout.lab.hosts.commands.busctl import busctl
from rollout.lab.hosts.commands.rpm_ostree import rpm_ostree
from rollout.lab.hosts.commands.sudo import sudo
from rollout.lab.hosts.commands.systemctl import systemctl
from rollout.lab.hosts.commands.update_engine import update_engine_client
from rollout.lab.hosts.process import Program
from rollout.lab.hosts.shell import sh

HOST_PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "[": condition.test,
        "apt-config": apt_config,
        "bash": sh,
        "busctl": busctl,
        "cat": text.cat,
        "cut": text.cut,
        "date": basic.date,
        "echo": text.echo,
        "env": basic.env,
        "false": basic.constant(1),
        "grep": text.grep,
        "head": text.head,
        "hostname": basic.hostname,
        "id": basic.identity,
        "journalctl": basic.journalctl,
        "nohup": basic.env,
        "printf": text.printf,
        "reboot": basic.reboot,
        "rm": basic.remove,
        "rpm-ostree": rpm_ostree,
        "sh": sh,
        "shutdown": basic.reboot,
        "sleep": basic.sleep,
        "sudo": sudo,
        "systemctl": systemctl,
        "tail": text.tail,
        "tee": text.tee,
        "test": condition.test,
        "timeout": basic.timeout,
        "touch": basic.touch,
        "tr": text.tr,
        "true": basic.constant(0),
        "tty": users.tty,
        "uname": basic.uname,
        "unattended-upgrade": basic.constant(0),
        "update_engine_client": update_engine_client,
        "uptime": basic.uptime,
        "wall": users.wall,
        "wc": text.wc,
        "which": basic.which,
        "who": users.who,
        "whoami": basic.identity,
    }
)
