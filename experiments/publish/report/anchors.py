"""Anchors for the texts of a plot, which the page sets in another font than matplotlib laid them out in.

Where it can, matplotlib writes an anchor with a text, which holds in any font. It places the lines of one text, and
rotated texts, by their left ends, computed from the widths in its own font; the alignment is inferred from these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_TEXT = "{http://www.w3.org/2000/svg}text"
_PLACE = re.compile(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)(?: rotate\(([-\d.]+)\))?")
_SAME = 0.5  # points within which two ends or two middles are at one place


def anchor(root: ElementTree.Element) -> None:
    """Give each text without an anchor the one that its position implies. `root` is matplotlib's own SVG."""
    for group in root.iter():
        loose = [(text, match) for text in group if text.tag == _TEXT and (match := _loose(text))]
        if not loose:
            continue
        widths = [_width(text) for text, _ in loose]
        share, name = _alignment([float(match[1]) for _, match in loose], widths, loose[0][1][3] is not None)
        if name == "start":
            continue
        for (text, _), width in zip(loose, widths, strict=True):
            text.set("style", f"{text.get('style')}; text-anchor: {name}")
            text.set("x", f"{share * width:.2f}")  # before the transform, so along the text at any rotation


def _loose(text: ElementTree.Element) -> re.Match | None:
    return None if "text-anchor" in text.get("style", "") else _PLACE.fullmatch(text.get("transform", ""))


def _alignment(lefts: Sequence[float], widths: Sequence[float], rotated: bool) -> tuple[float, str]:
    """(share of its width at which a text is held, SVG's name for it)."""
    if rotated:  # one line: nothing but its middle is known
        return 0.5, "middle"
    for share, name in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        places = [left + share * width for left, width in zip(lefts, widths, strict=True)]
        if max(places) - min(places) < _SAME:
            return share, name
    return 0.0, "start"


def _width(text: ElementTree.Element) -> float:
    """In points, in matplotlib's font."""
    about = dict(re.findall(r"([a-z-]+): ?'?([^;']+)'?", text.get("style", "")))
    font = FontProperties(
        family=about.get("font-family", "DejaVu Sans"),
        weight=int(about.get("font-weight", 400)),
        size=float(about["font-size"].removesuffix("px")),
    )
    return text_to_path.get_text_width_height_descent("".join(text.itertext()), font, False)[0]
