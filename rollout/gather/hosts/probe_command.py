"""The fixed commands, in POSIX sh, that run on hosts.

Only the operator's `detect.command` is inserted. A marker on both stdout and stderr begins each
section, to tell tools' errors apart. update_engine comes last: without a bus its client tries for
40 seconds.
"""

import shlex
from collections.abc import Iterator

from msgspec import Struct

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
# apt merges its files, and spells booleans alike.
_APT_CALL = "apt-config shell REBOOTS Unattended-Upgrade::Automatic-Reboot/b"
LOCKSMITHD = "locksmithd"
REBOOTMGR = "rebootmgr"
BOOTC_TIMER = "bootc-fetch-apply-updates.timer"
RPM_OSTREE_TIMER = "rpm-ostreed-automatic.timer"
SYSUPDATE_TIMER = "systemd-sysupdate-reboot.timer"
DNF_INSTALL_TIMER = "dnf-automatic-install.timer"
DNF_TIMERS = ("dnf-automatic.timer", "dnf5-automatic.timer")
REBOOTING_UNITS = (
    *(LOCKSMITHD, REBOOTMGR, BOOTC_TIMER, RPM_OSTREE_TIMER, SYSUPDATE_TIMER),
    *(DNF_INSTALL_TIMER, *DNF_TIMERS),
)
_RPM_OSTREE_CALL = "rpm-ostree status --json"
BOOTC_CALL = "bootc status --format json"

# `who` may be missing, or hang without a directory server.
USERS_SECTION = f"""
printf 'TTY=%s\\n' "$(tty)"
if command -v timeout >/dev/null 2>&1; then timeout 5 who; else who; fi; echo "{EXIT_MARKER} $?"
""".strip()

# A denied client prints CURRENT_OP=(null), with status 0.
_FUNCTIONS = rf"""
mark() {{ printf '\n{MARKER} %s\n' "$1"; printf '\n{MARKER} %s\n' "$1" >&2; }}
run() {{
  if command -v timeout >/dev/null 2>&1; then timeout "$@" </dev/null
  else shift; "$@" </dev/null; fi
}}
root() {{
  if [ "$(id -u)" = 0 ]; then run "$@"
  else seconds=$1; shift; run "$seconds" sudo -n "$@"; fi
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

# Files in /etc override those in /usr.
_FIRST_SECTIONS = rf"""
{_FUNCTIONS}
mark os-release; cat /etc/os-release || cat /usr/lib/os-release
mark update-conf
for dir in /usr/share/coreos /usr/share/flatcar /etc/coreos /etc/flatcar
do if [ -r "$dir/update.conf" ]; then cat "$dir/update.conf"; echo; fi; done
mark boot-id; cat /proc/sys/kernel/random/boot_id
mark machine-id; cat /etc/machine-id
mark units; run 5 systemctl is-active {" ".join(REBOOTING_UNITS)}
mark bootc-command; run 5 systemctl show -p ExecStart bootc-fetch-apply-updates.service
mark rpm-ostreed
if [ -r /etc/rpm-ostreed.conf ]; then cat /etc/rpm-ostreed.conf; fi
mark dnf-automatic
for file in /etc/dnf/dnf5-plugins/automatic.conf /etc/dnf/automatic.conf
do if [ -r "$file" ]; then cat "$file"; echo; fi; done
mark rebootmgr
for file in /etc/rebootmgr.conf /etc/rebootmgr/rebootmgr.conf /etc/rebootmgr/rebootmgr.conf.d/*.conf
do if [ -r "$file" ]; then cat "$file"; echo; fi; done
mark unattended-upgrades
if [ -x /usr/bin/unattended-upgrade ]; then run 5 {_APT_CALL}; fi
mark zincati
if [ -d /usr/lib/zincati ] || [ -d /etc/zincati ]; then
  run 5 systemctl is-active zincati
  for file in /usr/lib/zincati/config.d/*.toml /run/zincati/config.d/*.toml \
    /etc/zincati/config.d/*.toml
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
if command -v rpm-ostree >/dev/null 2>&1; then echo rpm-ostree
elif command -v bootc >/dev/null 2>&1; then echo bootc; fi
mark inhibitors; run 5 {_INHIBITORS_CALL}
mark shutdown
if [ -r /run/systemd/shutdown/scheduled ]
then cat /run/systemd/shutdown/scheduled; echo "NOW=$(date +%s)"; fi
mark users
{USERS_SECTION}
mark clock; echo "NOW=$(date +%s)"; cat /proc/uptime
""".strip()

BOOT_SECTIONS = """
mark boot; cat /proc/sys/kernel/random/boot_id
mark machine; cat /etc/machine-id
mark release; cat /etc/os-release || cat /usr/lib/os-release
""".strip()

# After a timeout (124), root would get no answer either.
_UPDATE_ENGINE = rf"""
ask client 12 {_CLIENT_CALL}; client=$code
if [ -z "$answered" ]; then ask bus 5 {_BUS_CALL}; fi
if [ -z "$answered" ] && [ "$code" != 124 ]; then ask sudo-bus 5 sudo -n {_BUS_CALL}; fi
if [ -z "$answered" ] && [ "$client" != 124 ]; then ask sudo-client 12 sudo -n {_CLIENT_CALL}; fi
""".strip()

# On old systems /var/run is not a link to /run.
_MARKER_FILE = r"""
mark reboot-required
if [ -e /run/reboot-required ] || [ -e /var/run/reboot-required ]
then echo needed; else echo not-needed; fi
mark reboot-required-packages
for file in /var/run/reboot-required.pkgs /run/reboot-required.pkgs
do if [ -r "$file" ]; then head -c 4000 "$file"; echo; fi; done
""".strip()

# A plain reboot ignores a locked deployment. Older versions show the lock only by this file.
_RPM_OSTREE = rf"""
ask rpm-ostree 8 {_RPM_OSTREE_CALL}
mark rpm-ostree-lock
if [ -e /run/ostree/staged-deployment-locked ]; then echo locked; fi
""".strip()

# Only root may ask bootc.
_BOOTC = rf"""
mark has-bootc; if command -v bootc >/dev/null 2>&1; then echo yes; fi
if [ "$(id -u)" != 0 ]; then ask bootc 10 sudo -n {BOOTC_CALL}
else ask bootc 10 {BOOTC_CALL}; fi
""".strip()

# The exit status comes last, so it is never cut.
_DETECT_COMMAND = rf"""
mark command
{{{{ run 15 sh -c {{command}}; printf '\n{EXIT_MARKER} %s\n' "$?"; }}}} 2>&1 | tail -c 2000
""".strip()

# The version on Flatcar's other USR partition. The read-only mount ends with the command.
READ_OTHER_SLOT = (
    "prefs=/var/lib/update_engine/prefs;"
    ' echo "NEXT_OPERATION=$(cat $prefs/update-state-next-operation 2>/dev/null)";'
    ' echo "FAILURES=$(cat $prefs/delta-update-failures 2>/dev/null)";'
    ' mount -o ro "$1" /mnt && cat /mnt/lib/os-release'
)
_OTHER_SLOT = rf"""
mark other-slot
if command -v cgpt >/dev/null 2>&1; then
  booted=$(rootdev -s /usr)
  other=$(root 5 cgpt find -t flatcar-usr | grep -vxF "$booted")
  printf 'BOOTED=%s\nOTHER=%s\n' "$booted" "$other"
  root 5 cgpt show "$other"
  root 9 unshare --mount sh -c '{READ_OTHER_SLOT}' sh "$other"
fi
""".strip()
_ROLLBACK = f"{_OTHER_SLOT}\n{_BOOTC}\n{_RPM_OSTREE}\n{_UPDATE_ENGINE}"

# For any device, because partitions swap.
_MAY_ROLL_BACK = rf"""
mark may-roll-back
may() {{
  if [ "$status" = 124 ]; then return
  elif [ "$(id -u)" = 0 ]; then status=0
  else run 5 sudo -n -l "$@" >/dev/null; status=$?; fi
  echo "$status $*"
}}
status=
if command -v bootc >/dev/null 2>&1; then may {BOOTC_CALL}; may bootc rollback; fi
if command -v rpm-ostree >/dev/null 2>&1; then may rpm-ostree rollback; fi
if command -v cgpt >/dev/null 2>&1; then
  booted=$(rootdev -s /usr)
  may cgpt find -t flatcar-usr; may cgpt show "$booted"; may cgpt prioritize "$booted"
  may unshare --mount sh -c '{READ_OTHER_SLOT}' sh "$booted"
fi
""".strip()

_SHOW = "systemctl show -p LoadState -p ActiveState -p UnitFileState"
_SHOW_WITH_START = f"{_SHOW} -p WantedBy -p ActiveEnterTimestampMonotonic"
_ENGINE_UNIT = f"mark update-engine; run 5 {_SHOW_WITH_START} update-engine.service"
_LOCKSMITHD_UNIT = f"mark locksmithd; run 5 {_SHOW} -p WantedBy locksmithd.service"
# systemctl writes local times.
_SHOW_TRIGGER = f"env TZ=UTC {_SHOW} -p LastTriggerUSec"
_RPM_OSTREE_UNITS = f"""
mark zincati-unit; run 5 {_SHOW} zincati.service
mark rpm-ostreed-automatic; run 5 {_SHOW_TRIGGER} rpm-ostreed-automatic.timer
mark rpm-ostreed-automatic-service; run 5 {_SHOW} rpm-ostreed-automatic.service
""".strip()
_BOOTC_UNITS = f"""
mark bootc-fetch-apply-updates; run 5 {_SHOW_TRIGGER} bootc-fetch-apply-updates.timer
mark bootc-fetch-apply-updates-service; run 5 {_SHOW} bootc-fetch-apply-updates.service
""".strip()

_END = """
mark end
exit 0
""".strip()


class Probe(Struct, frozen=True):
    sources: tuple[Source, ...] = DEFAULT_SOURCES
    detect_command: str = ""
    # Also for what only doctor needs.
    for_doctor: bool = False
    # What a rollback leaves, or empty; not in the command.
    unwanted_version: str = ""

    @property
    def command(self) -> str:
        return "\n".join((_FIRST_SECTIONS, *self._unit_sections, *self._source_sections, _END))

    @property
    def last_question(self) -> str:
        """Asks right before the reboot for what may have changed."""
        return "\n".join((_FUNCTIONS, BOOT_SECTIONS, *self._source_sections, _END))

    @property
    def _unit_sections(self) -> Iterator[str]:
        if self.for_doctor or Source.UPDATE_ENGINE in self.sources:
            yield _ENGINE_UNIT
        if Source.RPM_OSTREE in self.sources:
            yield _RPM_OSTREE_UNITS
        if Source.BOOTC in self.sources:
            yield _BOOTC_UNITS
        if self.for_doctor:
            yield _LOCKSMITHD_UNIT
            yield _MAY_ROLL_BACK

    @property
    def _source_sections(self) -> tuple[str, ...]:
        # Annotations are not on the host.
        parts = {
            Source.REBOOT_REQUIRED: _MARKER_FILE,
            Source.RPM_OSTREE: _RPM_OSTREE,
            Source.BOOTC: _BOOTC,
            Source.COMMAND: _DETECT_COMMAND.format(command=shlex.quote(self.detect_command)),
            Source.UPDATE_ENGINE: _UPDATE_ENGINE,
            Source.ROLLBACK: _ROLLBACK,
        }
        return tuple(text for source, text in parts.items() if source in self.sources)


def is_probe(command: str) -> bool:
    return command.startswith(_FIRST_SECTIONS)


def is_last_question(command: str) -> bool:
    return command.startswith(f"{_FUNCTIONS}\n{BOOT_SECTIONS}")


USUAL_PROBE = Probe()
PROBE_COMMAND = USUAL_PROBE.command

# It ends with the shutdown queued, before sshd stops.
REBOOT_COMMAND = 'if [ "$(id -u)" = 0 ]; then systemctl reboot; else sudo -n systemctl reboot; fi'
