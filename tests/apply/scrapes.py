"""Metrics as whoever scrapes them has them: read by Prometheus' own parser."""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """One moment's metrics; `text` is what was exposed."""

    text: str

    @cached_property
    def families(self) -> Mapping[str, Metric]:
        """By the name that TYPE has."""
        return {family.name: family for family in text_string_to_metric_families(self.text)}

    def values(self, name: str, label: str = "") -> dict[str, float]:
        """The samples of this name that are not 0, by the value of a label."""
        samples = [sample for family in self.families.values() for sample in family.samples if sample.name == name]
        return {sample.labels.get(label, ""): sample.value for sample in samples if sample.value}

    def value(self, name: str) -> float:
        """The one sample of this name; 0 where there is none."""
        return next(iter(self.values(name).values()), 0.0)


def complaints(scrape: Scrape) -> str:
    """What promtool has to say of the metrics; nothing where it is not installed."""
    tool = shutil.which("promtool")
    if tool is None:
        return ""
    ended = subprocess.run([tool, "check", "metrics"], input=scrape.text, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr
