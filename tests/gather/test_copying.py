"""What a copy without names hides."""

from rollout.gather.cluster.copying import Anonymizer


def test_roles_and_conditions_with_names_of_the_operator_are_hidden() -> None:
    anonymizer = Anonymizer.of(["node-a"], b"key")
    ready = {"type": "Ready", "status": "True"}
    gate = {"type": "target-health.elbv2.k8s.aws/k8s-shop-web-0123456789", "status": "True"}
    roles = {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/shop": ""}
    copied = anonymizer.hide_tree(
        {"metadata": {"labels": roles}, "status": {"conditions": [gate, ready]}}
    )
    assert copied["status"] == {"conditions": [ready]}
    known, role = copied["metadata"]["labels"]
    assert known == "node-role.kubernetes.io/control-plane"
    assert role == f"node-role.kubernetes.io/{anonymizer.digest('shop')}"
