"""Links between the pages lead somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_NO_ANCHOR = re.compile(r"[^\w\- ]")


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them of headings: small letters, hyphens for spaces, nothing else but words."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return frozenset(_NO_ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text))


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


def test_every_link_leads_somewhere() -> None:
    links = [
        (page, link)
        for page in PAGES
        for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
        if not link.startswith(("http://", "https://", "mailto:"))
    ]
    assert len(links) > 100
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not leads_somewhere(page, link)] == []
