"""The constant commands that run on hosts.

They live apart from the parser because a simulated host, a sudoers rule or an auditor needs exactly
these texts. Nothing that came from a cluster, an inventory or a host is ever part of them. The
probe has a part for each source that `detect.sources` names; in that of `command` stands the
operator's own, and nothing else of anybody's.

Both are plain POSIX sh: they run under whatever login shell of that family the user has. Each
section of the probe begins with a marker line on stdout and the same line on stderr, so that what a
tool complained about can be told from what it answered; every section may fail without spoiling the
others. The slow part, asking update_engine, comes last and bounds itself: where the bus is absent
the real client tries four times, ten seconds apart, before it gives up.
"""

import shlex
from dataclasses import dataclass

from rollout.model.detection import DEFAULT_SOURCES, Source

MARKER = "@@rollout-probe"
EXIT_MARKER = "@@exit"
FILE_MARKER = "@@file"

_BUS_CALL = (
    "busctl --system call com.coreos.update1 /com/coreos/update1 com.coreos.update1.Manager"
    " GetStatus"
)
_CLIENT_CALL = "update_engine_client -status"
_INHIBITORS_CALL = (
    "busctl --system call org.freedesktop.login1 /org/freedesktop/login1"
    " org.freedesktop.login1.Manager ListInhibitors"
)
# Apt itself knows which of its files counts; a boolean has several spellings, of which this prints
# one.
_APT_CALL = "apt-config shell REBOOTS Unattended-Upgrade::Automatic-Reboot/b"
_RPM_OSTREE_CALL = "rpm-ostree status --json"

# Who is logged in, and the terminal of the one who asks. A `who` that hangs, as where names come
# from a directory that is away, makes no host unreachable; one that is not there has no exit status
# 0 either.
USERS_SECTION = f"""
printf 'TTY=%s\\n' "$(tty)"
if command -v timeout >/dev/null 2>&1; then timeout 5 who; else who; fi; echo "{EXIT_MARKER} $?"
""".strip()

# `sudo -l COMMAND` tells whether the command is permitted and runs nothing; whether it would take a
# password is told by the list of all rules. A denied client prints CURRENT_OP=(null) and exits 0,
# which is why the answer is looked at, not the status. A scheduled shutdown comes with the host's
# own time: its distance is measured on one clock. Status 124 is that of a command that was cut off:
# there is nobody to answer root either. Where /etc overrides /usr both are printed, the overriding
# file last.
_FUNCTIONS = rf"""
mark() {{ printf '\n{MARKER} %s\n' "$1"; printf '\n{MARKER} %s\n' "$1" >&2; }}
run() {{
  if command -v timeout >/dev/null 2>&1; then timeout "$@" </dev/null; else shift; "$@" </dev/null; fi
}}
ask() {{
  mark "$1"; shift
  answer=$(run "$@"); code=$?
  printf '%s\n{EXIT_MARKER} %s\n' "$answer" "$code"
  case $answer in
    *'CURRENT_OP=(null)'*) ;;
    *CURRENT_OP=*|*'xdssx '*) answered=1 ;;
  esac
}}
answered= code=
""".strip()

_BEGINNING = rf"""
{_FUNCTIONS}
mark os-release; cat /etc/os-release || cat /usr/lib/os-release
mark update-conf
for dir in /usr/share/coreos /usr/share/flatcar /etc/coreos /etc/flatcar
do if [ -r "$dir/update.conf" ]; then cat "$dir/update.conf"; echo; fi; done
mark boot-id; cat /proc/sys/kernel/random/boot_id
mark machine-id; cat /etc/machine-id
mark units; run 5 systemctl is-active locksmithd bootc-fetch-apply-updates.timer
mark unattended-upgrades
if [ -x /usr/bin/unattended-upgrade ]; then run 5 {_APT_CALL}; fi
mark zincati
if [ -d /usr/lib/zincati ] || [ -d /etc/zincati ]; then
  run 5 systemctl is-active zincati
  for file in /usr/lib/zincati/config.d/*.toml /run/zincati/config.d/*.toml /etc/zincati/config.d/*.toml
  do if [ -r "$file" ]; then printf '{FILE_MARKER} %s\n' "$file"; cat "$file"; echo; fi; done
fi
mark may-reboot
if [ "$(id -u)" = 0 ]; then echo root
elif run 5 sudo -n -l systemctl reboot >/dev/null; then
  echo sudo
  mark sudo-rules; run 5 sudo -n -l
else echo "no $?"; fi
mark shows
if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]; then echo reboot-required; fi
if command -v rpm-ostree >/dev/null 2>&1; then echo rpm-ostree; fi
mark inhibitors; run 5 {_INHIBITORS_CALL}
mark shutdown
if [ -r /run/systemd/shutdown/scheduled ]; then cat /run/systemd/shutdown/scheduled; echo "NOW=$(date +%s)"; fi
mark users
{USERS_SECTION}
""".strip()

# What a host says of itself and its boot.
BOOT_SECTIONS = """
mark boot; cat /proc/sys/kernel/random/boot_id
mark machine; cat /etc/machine-id
mark release; cat /etc/os-release || cat /usr/lib/os-release
""".strip()

_ENGINE = rf"""
ask client 12 {_CLIENT_CALL}; client=$code
if [ -z "$answered" ]; then ask bus 5 {_BUS_CALL}; fi
if [ -z "$answered" ] && [ "$code" != 124 ]; then ask sudo-bus 5 sudo -n {_BUS_CALL}; fi
if [ -z "$answered" ] && [ "$client" != 124 ]; then ask sudo-client 12 sudo -n {_CLIENT_CALL}; fi
""".strip()

# /var/run is a link to /run, but on systems that are older than that.
_MARKER_FILE = r"""
mark reboot-required
if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]; then echo needed; else echo not-needed; fi
mark reboot-required-packages
for file in /var/run/reboot-required.pkgs /run/reboot-required.pkgs
do if [ -r "$file" ]; then head -c 4000 "$file"; echo; fi; done
""".strip()

# A staged deployment that is locked is not booted by a plain reboot; older versions say so by a
# file alone.
_RPM_OSTREE = rf"""
ask rpm-ostree 8 {_RPM_OSTREE_CALL}
mark rpm-ostree-lock
if [ -e /run/ostree/staged-deployment-locked ]; then echo locked; fi
""".strip()

# What it prints is shown, so it is bounded; its exit status comes last, whatever of the rest is cut
# off.
_SENTINEL = rf"""
mark command
{{{{ run 15 sh -c {{command}}; printf '\n{EXIT_MARKER} %s\n' "$?"; }}}} 2>&1 | tail -c 2000
""".strip()

# Of the doctor alone.
_SHOWN = "systemctl show -p LoadState -p ActiveState -p UnitFileState -p WantedBy"
_UNITS = f"""
mark update-engine; run 5 {_SHOWN} update-engine.service
mark locksmithd; run 5 {_SHOWN} locksmithd.service
""".strip()

_END = """
mark end
exit 0
""".strip()


@dataclass(frozen=True, slots=True)
class Probe:
    """What a host is asked: by which sources a reboot may be needed, and the operator's own command for the last.

    With `units` it is asked for the states of update-engine and locksmithd, too.
    """

    sources: tuple[Source, ...] = DEFAULT_SOURCES
    detect_command: str = ""
    units: bool = False

    @property
    def command(self) -> str:
        """The same as what the host runs."""
        return "\n".join((_BEGINNING, *((_UNITS,) if self.units else ()), *self._asked, _END))

    @property
    def last_question(self) -> str:
        """What the host is asked right before its reboot: which boot it is in, and what the sources say now."""
        return "\n".join((_FUNCTIONS, BOOT_SECTIONS, *self._asked, _END))

    @property
    def _asked(self) -> tuple[str, ...]:
        """The parts of its sources."""
        parts = {
            Source.REBOOT_REQUIRED: _MARKER_FILE,
            Source.RPM_OSTREE: _RPM_OSTREE,
            Source.COMMAND: _SENTINEL.format(command=shlex.quote(self.detect_command)),
            Source.UPDATE_ENGINE: _ENGINE,
        }
        return tuple(text for source, text in parts.items() if source in self.sources)


def is_probe(command: str) -> bool:
    """Whether a command is a probe, by whatever sources."""
    return command.startswith(_BEGINNING)


def is_last_question(command: str) -> bool:
    """Whether a command is what a host is asked right before its reboot, by whatever sources."""
    return command.startswith(f"{_FUNCTIONS}\n{BOOT_SECTIONS}")


USUAL_PROBE = Probe()
PROBE_COMMAND = USUAL_PROBE.command

# `systemctl` asks logind over the bus and ends with logind's answer, which comes when the shutdown
# is queued: sshd and its sessions are stopped only by that shutdown, so that the exit status is on
# its way before the connection goes.
REBOOT_COMMAND = 'if [ "$(id -u)" = 0 ]; then systemctl reboot; else sudo -n systemctl reboot; fi'
