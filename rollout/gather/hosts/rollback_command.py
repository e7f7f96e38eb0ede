"""The fixed commands that choose which of two images boots next.

They may run any number of times: a swap runs only if the wanted system is not next already.
"""

_FIRST = "rpm-ostree status --jsonpath='$.deployments[0].{field}'"
_IS_FIRST_BOOTED = _FIRST.format(field="booted")
_IS_FIRST_STAGED = _FIRST.format(field="staged")
_ALL_BOOTED = "rpm-ostree status --jsonpath='$.deployments[*].booted' | tr -d '[:space:]'"
_UNCLEAR = "echo 'rpm-ostree does not say which deployment boots next' >&2; return 1"
_STAGED_SINCE = "echo 'another version has been staged, and would boot instead' >&2; return 1"
_NOT_CHOSEN = "echo 'rpm-ostree has not put the booted deployment first' >&2; return 1"
# As bootc orders these fields.
_IMAGE = """*'"booted":{"image":{'*"""
_STAGED = f"""*'"staged":{{'{_IMAGE}"""
_QUEUED = f"""*'"staged":null,'{_IMAGE}'"rollbackQueued":true'*"""

_FUNCTIONS = r"""
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
images() {
  if command -v bootc >/dev/null 2>&1
  then root bootc status --format json | tr -d '[:space:]'; fi
}
other() { root cgpt find -t flatcar-usr | grep -vxF "$(rootdev -s /usr)"; }
""".strip()

_BOOT_OTHER = rf"""
{_FUNCTIONS}
boot_other() {{
  case $(images) in
    {_STAGED}) {_STAGED_SINCE} ;;
    {_QUEUED}) return 0 ;;
    {_IMAGE}) root bootc rollback; return ;;
  esac
  if command -v rpm-ostree >/dev/null 2>&1; then
    case $({_IS_FIRST_BOOTED}):$({_IS_FIRST_STAGED}) in
      *true*:*) root rpm-ostree rollback ;;
      *:*true*) {_STAGED_SINCE} ;;
      *false*:*false*) return 0 ;;
      *) {_UNCLEAR} ;;
    esac
  else
    other=$(other)
    flags=$(root cgpt show "$other") || return
    case $flags in
      *successful=1*) root cgpt prioritize "$other" ;;
      *) {_STAGED_SINCE} ;;
    esac
  fi
}}
""".strip()

# What has been staged since boots next. `rpm-ostree rollback` prefers the deployment after the
# booted one, maybe a pinned one.
BOOT_RUNNING_COMMAND = rf"""
{_FUNCTIONS}
boot_running() {{
  case $(images) in
    {_QUEUED}) root bootc rollback; return ;;
    {_IMAGE}) return 0 ;;
  esac
  if command -v rpm-ostree >/dev/null 2>&1; then
    case $({_IS_FIRST_BOOTED})$({_IS_FIRST_STAGED}) in
      *true*) return 0 ;;
      *false*) ;;
      *) {_UNCLEAR} ;;
    esac
    case $({_ALL_BOOTED}) in
      *',true]') root rpm-ostree rollback || return ;;
      '[false,true,'*) root ostree admin set-default 1 || return ;;
    esac
    case $({_IS_FIRST_BOOTED}) in
      *true*) return 0 ;;
      *) {_NOT_CHOSEN} ;;
    esac
  else
    flags=$(root cgpt show "$(other)") || return
    case $flags in
      *successful=1*) root cgpt prioritize "$(rootdev -s /usr)" ;;
    esac
  fi
}}
boot_running
""".strip()
"""Makes the host boot the system that it runs now."""


def rollback_command(reboot: str) -> str:
    return f"{_BOOT_OTHER}\nboot_other && {{\n{reboot}\n}}"


def is_rollback(command: str) -> bool:
    return command.startswith(_BOOT_OTHER)
