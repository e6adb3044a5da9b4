"""Plots as SVG inside the page: they follow light and dark mode, and their ids do not meet those of other plots.

matplotlib writes each colour as six digits. A colour that `experiments.plots.look.style` names becomes the page's
variable of that meaning; any other keeps its hue and chroma and, in the dark, exchanges light for dark, so that a text
on a cell stays as readable as it was. Texts stay texts, in the page's own font.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup

from experiments.plots.look import style
from experiments.report.anchors import anchor
from experiments.report.colours import dark_twin

# What the page's style sheet defines for both modes.
_NAMED = {
    style.INK: "ink",
    style.MUTED: "muted",
    style.BASELINE: "muted",
    style.FAILED: "failed",
    "#ffffff": "paper",
    "#000000": "ink",
    **{look.colour: dialect for dialect, look in style.LOOKS.items()},
}
_PAINT = re.compile(r"\b(fill|stroke|stop-color|color): ?(#[0-9a-f]{6})\b")
_FONT = re.compile(r"font-family: ?[^;]*;? ?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_WITH_TEXT = ("text", "tspan")
_NARROW = 72 * style.NARROW  # points: a plot that a telephone shows whole
_COORDINATES = ("d", "x", "y", "points", "transform", "width", "height")


@dataclass(frozen=True)
class Figure:
    """One plot, ready to stand in the page."""

    name: str  # the stem of its file
    title: str
    svg: Markup


def inline(name: str, text: str) -> Figure:
    """matplotlib's SVG file as an element of an HTML page."""
    root = ElementTree.fromstring(text)
    title = _title(root) or name.replace("_", " ")
    anchor(root)
    used = set(_references(root))
    _plain(root, used, name)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-label": title}
    if float(root.get("viewBox", "0 0 0 0").split()[2]) <= _NARROW:
        root.set("class", "narrow")
    return Figure(name, title, Markup(ElementTree.tostring(root, encoding="unicode")))


def variables(drawn: Iterable[Figure]) -> list[tuple[str, str, str]]:
    """(name, in the light, in the dark) of each colour that is in a plot and has no meaning of its own."""
    found = sorted({digits for figure in drawn for digits in re.findall(r"var\(--x-([0-9a-f]{6})\)", figure.svg)})
    return [(f"--x-{digits}", f"#{digits}", dark_twin(f"#{digits}")) for digits in found]


def _title(root: ElementTree.Element) -> str:
    """The largest text of the plot: what `style.heading` wrote."""
    sizes: dict[float, str] = {}
    for text in root.iter(f"{_SVG}text"):
        size = re.search(r"font-size: ?([\d.]+)px", text.get("style", ""))
        sizes.setdefault(float(size[1]) if size else 0.0, "".join(text.itertext()).strip())
    return sizes[max(sizes)] if sizes else ""


def _references(root: ElementTree.Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            if key in ("href", f"{_XLINK}href") and value.startswith("#"):
                yield value[1:]
            yield from _REFERENCE.findall(value)


def _plain(element: ElementTree.Element, used: set[str], prefix: str) -> None:
    """Turn an element and all below it into the page's: no namespaces, own ids and colours, nothing without effect."""
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(_attributes(element, used, prefix))
    if element.tag not in _WITH_TEXT:
        element.text = None
    children = []
    for child in element:
        if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):  # the style sheet has what the latter says
            continue
        _plain(child, used, prefix)
        child.tail = child.tail if element.tag in _WITH_TEXT else None
        bare = child.tag in ("g", "defs") and not child.attrib
        if bare and child.tag == "g":
            children += list(child)
        elif not bare or len(child):
            children.append(child)
    element[:] = children


def _attributes(element: ElementTree.Element, used: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        key = key.removeprefix(_XLINK)
        if key == "id":
            if value not in used:
                continue
            value = f"{prefix}-{value}"
        elif key == "href" and value.startswith("#"):
            value = f"#{prefix}-{value[1:]}"
        elif key == "style":
            value = _PAINT.sub(_themed, _FONT.sub("", value))
        elif key in _COORDINATES:
            value = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
            value = " ".join(value.split())
            if value.startswith("rotate(-0 ") or value.startswith("rotate(0 "):
                continue
        yield key, _REFERENCE.sub(rf"url(#{prefix}-\1)", value)


def _themed(match: re.Match) -> str:
    name = _NAMED.get(match[2], f"x-{match[2][1:]}")
    return f"{match[1]}: var(--{name})"
