"""Pages: one file each, that fetches nothing, runs nothing, and shows foreign text as text.

Whatever a template prints is escaped, and its control and direction characters are made visible; the page's own policy
forbids every source but its one style.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rollout.model.text import printable
from rollout.report.runs.tables import clock


def rendered(template: str, title: str, **content: Any) -> str:
    """The page that a template makes of this."""
    loader = PackageLoader("rollout.report.runs", "templates")
    style = loader.get_source(environment := _environment(loader), "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template(template)
    return page.render(title=title, style=Markup(style), style_hash=f"sha256-{digest}", **content)  # noqa: S704 - ours


def _environment(loader: PackageLoader) -> Environment:
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters.update(_FILTERS)
    return environment


def _shown(value: object) -> object:
    """Foreign text without what moves or hides other text; markup is the templates' own."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _whole(text: str) -> Markup:
    """Flags of which no line ends within one."""
    parts = text.split(", ") if text.startswith("--") else [text]
    shown = [printable(part) + ("," if part is not parts[-1] else "") for part in parts]
    return Markup(" ").join(Markup('<span class="whole">{}</span>').format(part) for part in shown)


_FILTERS: Mapping[str, Any] = {"anchor": _anchor, "clock": clock, "whole": _whole}
