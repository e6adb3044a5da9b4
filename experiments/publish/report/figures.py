"""Plots as SVG inside the page: they follow light and dark mode, and their ids do not meet those of other plots.

matplotlib writes each colour as six digits. A colour that `experiments.publish.drawing.style` names becomes the page's
variable of that meaning; any other keeps its hue and chroma and, in the dark, exchanges light for dark, so that a text
on a cell stays as readable as it was. Texts stay texts, in the page's own font.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup

from experiments.publish.drawing import style
from experiments.publish.report.anchors import anchor
from experiments.publish.report.colours import dark_twin
from experiments.records import studies

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
_DRAWN = ("path", "use", "text")
_FEW = 3  # elements, for which no group is worth its bytes
_COORDINATES = ("d", "x", "y", "points", "transform", "width", "height")


@dataclass(frozen=True)
class Figure:
    """One plot, ready to stand in the page."""

    name: str  # the stem of its file
    title: str
    caption: str  # what to look at in it
    svg: Markup


def inline(name: str, text: str, prefix: str = "") -> Figure:
    """matplotlib's SVG file of the stem `name` as an element of an HTML page, whose ids begin with `prefix` and it."""
    root = ElementTree.fromstring(text)
    title = _title(root) or name.replace("_", " ")
    anchor(root)
    ids = {own: f"{prefix}{name}-{number}" for number, own in enumerate(dict.fromkeys(_references(root)))}
    _plain(root, ids)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-label": title}
    if float(root.get("viewBox", "0 0 0 0").split()[2]) <= _NARROW:
        root.set("class", "narrow")
    svg = Markup(ElementTree.tostring(root, encoding="unicode"))
    return Figure(name, title, studies.captions().get(name, ""), svg)


def in_order(found: Iterable[Figure]) -> list[Figure]:
    """In the order of the captions; those that have none are last."""
    places = {name: place for place, name in enumerate(studies.captions())}
    return sorted(found, key=lambda figure: places.get(figure.name, len(places)))


def variables(drawn: Iterable[Figure]) -> list[tuple[str, str, str]]:
    """(name, in the light, in the dark) of each colour that is in a plot and has no meaning of its own."""
    found = sorted({digits for figure in drawn for digits in re.findall(r"var\(--x-([0-9a-f]{6})\)", figure.svg)})
    return [(f"--x-{digits}", f"#{digits}", dark_twin(f"#{digits}")) for digits in found]


def _title(root: ElementTree.Element) -> str:
    """The largest text of the plot: that of the sheet."""
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


def _plain(element: ElementTree.Element, ids: Mapping[str, str]) -> None:
    """Turn an element and all below it into the page's: no namespaces, own ids and colours, nothing without effect."""
    element.tag = element.tag.removeprefix(_SVG)
    element.attrib = dict(_attributes(element, ids))
    if element.tag not in _WITH_TEXT:
        element.text = None
    children = []
    for child in element:
        if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):  # the style sheet has what the latter says
            continue
        _plain(child, ids)
        child.tail = child.tail if element.tag in _WITH_TEXT else None
        bare = child.tag in ("g", "defs") and not child.attrib
        if bare and child.tag == "g":
            children += list(child)
        elif not bare or len(child):
            children.append(child)
    element[:] = _gathered(children)


def _gathered(children: list[ElementTree.Element]) -> Iterator[ElementTree.Element]:
    """Elements in a row that look alike share a group that says how, once."""
    for look, run in itertools.groupby(children, lambda child: (child.get("style", ""), child.get("clip-path", ""))):
        alike = list(run)
        is_whole = re.search(r"(^|[; ])opacity", look[0])  # which does not reach a group's parts each on its own
        if len(alike) < _FEW or not look[0] or is_whole or alike[0].tag not in _DRAWN:
            yield from alike
            continue
        group = ElementTree.Element(
            "g", {key: value for key, value in zip(("style", "clip-path"), look, strict=True) if value}
        )
        for child in alike:
            child.attrib.pop("style", None)
            child.attrib.pop("clip-path", None)
        group[:] = alike
        yield group


def _attributes(element: ElementTree.Element, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        key = key.removeprefix(_XLINK)
        if key == "id":
            if value not in ids:
                continue
            value = ids[value]
        elif key == "href" and value.startswith("#"):
            value = f"#{ids[value[1:]]}"
        elif key == "style":
            value = _PAINT.sub(_themed, _FONT.sub("", value)).replace(": ", ":").replace("; ", ";")
        elif key in _COORDINATES:
            value = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
            value = " ".join(value.split())
            if value.startswith("rotate(-0 ") or value.startswith("rotate(0 "):
                continue
        yield key, _REFERENCE.sub(lambda match: f"url(#{ids[match[1]]})", value)


def _themed(match: re.Match) -> str:
    name = _NAMED.get(match[2], f"x-{match[2][1:]}")
    return f"{match[1]}:var(--{name})"
