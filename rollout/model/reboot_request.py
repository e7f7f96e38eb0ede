"""The word on a Node that it needs a reboot: FLUO's and CLUO's agents write one, and a person may write any."""

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Answer, Sign, Source


def annotation_sign(node: Node) -> Sign:
    """What the annotations say, whoever wrote them; only our own has to be one of its two words."""
    source, own = Source.ANNOTATION, node.annotations.get(marks.REBOOT_NEEDED, "false")
    if own not in {"true", "false"}:
        return Sign(source, Answer.NONE, f"its annotation {marks.REBOOT_NEEDED} is neither true nor false")
    names = requests(node, marks.REQUESTS)
    if names:
        return Sign(source, Answer.NEEDED, f"annotation {', '.join(names)}")
    return Sign(source, Answer.NOT_NEEDED, "no annotation reboot-needed")


def requests(node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these annotations ask for a reboot."""
    return tuple(name for name in names if node.annotations.get(name) == "true")
