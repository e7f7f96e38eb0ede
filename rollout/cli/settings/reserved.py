"""Which settings count only from the operator: from a flag, the environment, or a file named with --config.

A file that merely lies in the current folder may have come with a checkout or an archive. It may tune a rollout; it may
not run programs, choose whom to trust, write files, or consent to anything in the operator's place. Every flag stands
here in one of the two; a flag that stands in neither counts as reserved.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rollout.errors import UsageError

_RUNS = "runs programs, or names files that do"
_TRUSTS = "chooses keys, whom to trust, or where a secret goes"
_WRITES = "writes a file"
_OPENS = "opens a port"
_CONSENTS = "gives consent, or overrides a refusal"

RESERVED: Mapping[str, str] = {
    "kubeconfig": _RUNS,
    "executor": _RUNS,
    "inventory": _RUNS,
    "ssh-config": _RUNS,
    "gate-command": _RUNS,
    "reboot-command": _RUNS,
    "detect-command": _RUNS,
    "wall-message": _RUNS,
    "pre-reboot-playbook": _RUNS,
    "post-reboot-playbook": _RUNS,
    "image": _RUNS,
    "ssh-key": _TRUSTS,
    "ssh-secret": _TRUSTS,
    "env-secret": _TRUSTS,
    "image-pull-secret": _TRUSTS,
    "known-hosts": _TRUSTS,
    "fingerprints": _TRUSTS,
    "host-key-checking": _TRUSTS,
    "prometheus-url": _TRUSTS,
    "metrics-pushgateway": _TRUSTS,
    "metrics-listen": _OPENS,
    "listen": _OPENS,
    "tls-cert": _TRUSTS,
    "tls-key": _TRUSTS,
    "tls-secret": _TRUSTS,
    "metrics-textfile": _WRITES,
    "notify": _TRUSTS,
    "notify-file": _TRUSTS,
    "journal": _WRITES,
    "log-file": _WRITES,
    "out": _WRITES,
    "markdown": _WRITES,
    "yes": _CONSENTS,
    "all": _CONSENTS,
    "force": _CONSENTS,
    "force-unlock": _CONSENTS,
    "finish-begun": _CONSENTS,
    "disable-eviction": _CONSENTS,
    "pod-selector": _CONSENTS,
    "skip-wait-for-delete-timeout": _CONSENTS,
    "include-cordoned": _CONSENTS,
    "include-held": _CONSENTS,
    "ignore-rival": _CONSENTS,
    "ignore-blockers": _CONSENTS,
}
TUNING = frozenset(
    {
        *("context", "all-clusters", "lease-namespace", "lease-duration", "selector", "node", "exclude"),
        *("ssh-user", "ssh-port", "probe-timeout", "probe-concurrency"),
        *(
            "max-unavailable",
            "max-failures",
            "canary",
            "ramp",
            "spread-by",
            "control-plane",
            "control-plane-selector",
            "soak",
            "health-checks",
        ),
        *("sharing", "strategy", "control-plane-selector"),
        *("reboot-idle", "skip-blocked", "require-all", "retry-failed", "delete-emptydir-data", "grace-period"),
        *("detect", "prefer-no-schedule-taint", "exclude-from-load-balancers"),
        *("drain-delay", "reboot-delay", "wait-for-users", "wall"),
        *("pre-reboot-node-labels", "post-reboot-node-labels", "fluo-labels"),
        *("drain-timeout", "reboot-timeout", "ready-timeout", "settle-timeout"),
        *("window", "reboot-window-start", "reboot-window-length", "window-fit", "wait-window"),
        *("before-reboot-annotations", "after-reboot-annotations", "hook-prefix", "hook-timeout"),
        *("blocking-pod-selector", "gate-timeout", "interactive"),
        *("alert-filter-regexp", "alert-filter-match-only", "alert-firing-only"),
        *("notify-on", "notify-held-after", "notify-cluster", "notify-test", "cluster-name"),
        *("once", "every", "active-deadline"),
        *("slots", "group", "group-selector", "slot-timeout"),
        *("stop", "wait", "timeout", "stall-timeout", "dry-run", "detailed-exitcode", "explain"),
        *("namespace", "name", "schedule", "time-zone", "format"),
        *("replicas", "cluster-ip", "hosts-network"),
        *("requests", "limits", "node-selector", "toleration", "pod-monitor"),
        *("run", "pending", "watch", "list", "host", "output", "verbose", "metrics-cluster"),
        *("reason", "until"),
    }
)


SECRETS = frozenset({"notify"})
"""Flags whose values are secrets: whoever has one can act by it."""

HIDDEN = SECRETS | {"metrics-pushgateway"}
"""Flags whose values are secrets or may hold one: neither complaints nor helps show them, of whatever layer."""


REREAD = "rollout.reread"
"""Of a command's context, while a command that runs reads its settings again: nothing is said of them."""


def refuse_reserved(settings: Mapping[str, Any], origin: str) -> None:
    """`UsageError` that names every reserved setting of a file that nobody named."""
    reserved = {key: RESERVED.get(key, _RUNS) for key in _keys(settings) if key not in TUNING}
    if not reserved:
        return
    settings_with_reasons = ", ".join(f"{key} ({reason})" for key, reason in reserved.items())
    raise UsageError(
        f"{origin} was found in the current folder, not named, and may not set {settings_with_reasons}",
        hint=f"Where the file is yours, name it: --config {origin}, or ROLLOUT_CONFIG={origin}.",
    )


def _keys(settings: Mapping[str, Any]) -> Iterator[str]:
    """Every setting of the file, those of its tables included, as the flags write them."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _keys(value)
        else:
            yield key.replace("_", "-")
