from collections.abc import Sequence

from rollout.model.cluster import OwnerRef, Pod
from rollout.model.text import listed, shell_word

_MOST_FINALIZERS = 3
_RUNTIME = (
    "If that shows nothing, the pod's containers are not exiting. Check the kubelet and the"
    " container runtime on the host, for example with journalctl -u kubelet"
)
_WEBHOOKS = (
    "A webhook or proxy may be intercepting eviction requests:"
    " kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
)
_LAST_RESORT = (
    "its containers may still be running, and can destroy data if a replacement uses the same"
    " volume; as a last resort, force-delete the pod"
)


def steps_for_terminating(pod: Pod) -> Sequence[str]:
    target = f"-n {shell_word(pod.namespace)} {shell_word(pod.name)}"
    if pod.finalizers:
        names = listed(pod.finalizers, _MOST_FINALIZERS)
        return (
            f"kubectl get pod {target} -o yaml",
            (
                f"repair the controller that has to remove the finalizers ({names}); until then,"
                " even --force does not delete the pod"
            ),
        )
    return (
        f"kubectl describe pod {target}",
        _RUNTIME,
        f"{_LAST_RESORT}: kubectl delete pod {target} --force",
    )


def steps_for_undeleted(pod: Pod) -> Sequence[str]:
    """Perhaps a webhook or proxy accepted the pod's eviction, and not the API server."""
    return (
        f"kubectl describe pod -n {shell_word(pod.namespace)} {shell_word(pod.name)}",
        _WEBHOOKS,
    )


def describe_controller_command(namespace: str, controller: OwnerRef) -> str:
    kind = shell_word(f"{controller.kind.lower()}.{controller.group}")
    return f"kubectl describe {kind} -n {shell_word(namespace)} {shell_word(controller.name)}"


def describe_deployment_commands(deployment: str) -> Sequence[str]:
    """`deployment` is `namespace/name`."""
    namespace, _, name = deployment.partition("/")
    target = f"-n {shell_word(namespace)} {shell_word(f'deployment/{name}')}"
    return (
        f"kubectl rollout status {target} --watch=false",
        f"kubectl describe {target}",
    )
