"""What asks for a reboot besides the update engine: the word on a Node, and sources that a host shows and nobody asked.

FLUO's and CLUO's agents write one on the Node, and a person may write any.
"""

from collections.abc import Iterable, Sequence

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Sign, Source, SourceAnswer
from rollout.model.host import HostFacts


def annotation_sign(node: Node) -> Sign:
    """Return what the annotations say, whoever wrote them; only our own has to be one of its two words."""
    source = Source.ANNOTATION
    own = node.annotations.get(marks.REBOOT_NEEDED, "false")
    if own not in {"true", "false"}:
        return Sign(
            source,
            SourceAnswer.NONE,
            f"its annotation {marks.REBOOT_NEEDED} is neither true nor false",
        )
    names = requests(node, marks.REQUESTS)
    if names:
        return Sign(source, SourceAnswer.NEEDED, f"annotation {', '.join(names)}")
    return Sign(source, SourceAnswer.NOT_NEEDED, "no annotation reboot-needed")


def requests(node: Node, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these annotations ask for a reboot."""
    return tuple(name for name in names if node.annotations.get(name) == "true")


_OTHERS = ", ".join(source for source in Source if source is not Source.UPDATE_ENGINE)


def sources_not_asked(node: Node, facts: HostFacts) -> tuple[Source, ...]:
    """Those that host or Node show, and that were not asked."""
    is_annotated = Source.ANNOTATION not in facts.sources and annotation_sign(node).is_needed
    return (*((Source.ANNOTATION,) if is_annotated else ()), *facts.shows)


def detect_flag(asked: Sequence[Source], shown: Iterable[Source]) -> str:
    """Return the flag that asks by all of them: `--set detect.sources=update-engine,rpm-ostree`."""
    return f"--set detect.sources={','.join(dict.fromkeys((*asked, *shown)))}"


def way_to_judge(facts: HostFacts, shown: Sequence[Source]) -> str:
    """By which flag a host could be judged that gave no answer; empty where none is known to help."""
    if shown:
        return f"it has {', '.join(shown)}: {detect_flag(facts.sources, shown)}"
    if facts.lacks_engine:
        return f"detect.sources names what else says that it needs a reboot: {_OTHERS}"
    return ""
