"""Reboot annotations on a Node, and sources that a host has and that were not asked.

FLUO's and CLUO's agents write such an annotation, and people may write rollout's own.
"""

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Sign, Source, SourceAnswer
from rollout.model.host import HostFacts


def annotation_sign(node: Node) -> Sign:
    """Return what the reboot annotations say. Rollout's own must be true or false."""
    source = Source.ANNOTATION
    own = node.annotations.get(marks.REBOOT_NEEDED, "false")
    if own not in {"true", "false"}:
        detail = f"its annotation {marks.REBOOT_NEEDED} is neither true nor false"
        return Sign(source, SourceAnswer.NONE, detail)
    names = requests(node, marks.REQUESTS)
    if names:
        return Sign(source, SourceAnswer.NEEDED, f"annotation {', '.join(names)}")
    return Sign(source, SourceAnswer.NOT_NEEDED, "no annotation reboot-needed")


def requests(node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of these annotations ask for a reboot."""
    return tuple(name for name in names if node.annotations.get(name) == "true")


_OTHERS = ", ".join(source for source in Source if source is not Source.UPDATE_ENGINE)


def sources_not_asked(node: Node, facts: HostFacts) -> tuple[Source, ...]:
    """Return the sources that the host or the Node has, and that were not asked."""
    if Source.ANNOTATION not in facts.sources and annotation_sign(node).is_needed:
        return (Source.ANNOTATION, *facts.shows)
    return facts.shows


def detect_flag(*sources: Source) -> str:
    """Return the flag that asks these sources, such as `--set detect.sources=rpm-ostree`."""
    return f"--set detect.sources={','.join(dict.fromkeys(sources))}"


def how_to_ask(facts: HostFacts) -> str:
    """Return how to ask a host that gave no response; empty if nothing is known to help."""
    if facts.shows:
        return f"it has {', '.join(facts.shows)}: {detect_flag(*facts.sources, *facts.shows)}"
    if facts.lacks_engine:
        return f"add another source to detect.sources: {_OTHERS}"
    return ""
