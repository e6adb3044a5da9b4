"""Every text of every published picture can be read where it stands, on the light page and on the dark one."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from experiments.publish.drawing import style
from experiments.publish.pages import FOLDER
from experiments.publish.report import colours

_SHEET = (FOLDER / "base.css").read_text(encoding="utf-8")
PALETTE = {name: two for name, *two in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", _SHEET)}
PALETTE |= {dialect: [look.colour, look.dark] for dialect, look in style.LOOKS.items()}
_WIDTH = 0.55  # of a letter, of its height


def _colour(name: str, page: int) -> str:
    """What `var(--name)` is on the light page, 0, or on the dark one, 1."""
    if name.startswith("x-"):
        return colours.dark_twin(f"#{name[2:]}") if page else f"#{name[2:]}"
    return PALETTE[name][page]


@functools.cache
def _low(fill: str, under: str) -> tuple[str, ...]:
    """Of the light page and the dark one, the colours of a text and of what is under it, where they are too alike."""
    pairs = [(_colour(fill, page), _colour(under, page)) for page in (0, 1)]
    return tuple(f"{pair[0]} on {pair[1]}" for pair in pairs if colours.contrast(*pair) < 4.5)


def _fill(element: ElementTree.Element) -> str:
    """The name of a fill's variable: the ink where there is no other, empty where there is none."""
    found = re.search(r"(?<![-\w])fill: ?(?:var\(--([\w-]+)\)|none)", element.get("style", ""))
    return "ink" if found is None else found[1] or ""


def _box(path: ElementTree.Element) -> tuple[float, ...] | None:
    """Left, top, right and bottom of a rectangle; None for any other shape."""
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path.get("d", ""))]
    xs, ys = {x for x, _ in points}, {y for _, y in points}
    if len(xs) != 2 or len(ys) != 2 or re.search("[CQA]", path.get("d", "")):
        return None
    return min(xs), min(ys), max(xs), max(ys)


def _points(text: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """The middle and both ends of a text, a little above its foot; where it begins, if it is turned or a formula."""
    about = text.get("style", "")
    size, held = re.search(r"font-size: ([\d.]+)px", about), re.search(r"text-anchor: (\w+)", about)
    x, y = float(text.get("x", 0)), float(text.get("y", 0))
    if moved := re.search(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", text.get("transform", "")):
        x, y = x + float(moved[1]), y + float(moved[2])
    if size is None or "rotate" in text.get("transform", ""):
        yield x, y
        return
    high = float(size[1])
    width = _WIDTH * high * len("".join(text.itertext()))
    left = x - width * {"middle": 0.5, "end": 1.0}.get(held[1] if held else "start", 0.0)
    yield from ((left + share * width, y - 0.35 * high) for share in (0.1, 0.5, 0.9))


def _with_looks(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """What is painted of the element and all in it, each with the style of its group where it has none of its own."""
    yield element
    for child in element if element.tag != "defs" else ():
        child.set("style", child.get("style") or element.get("style", ""))
        yield from _with_looks(child)


def low_contrasts(svg: str) -> list[str]:
    """The texts of a picture of the page whose contrast with what is painted under them is below 4.5."""
    painted: list[tuple[tuple[float, ...], str]] = []
    low = []
    for element in _with_looks(ElementTree.fromstring(svg)):
        if element.tag == "path" and _fill(element) and (box := _box(element)):
            painted.append((box, _fill(element)))
        if element.tag != "text" or not _fill(element):
            continue
        for x, y in _points(element):
            latest = reversed(painted)
            under = (name for (left, top, right, bottom), name in latest if left < x < right and top < y < bottom)
            low += [f"{''.join(element.itertext())!r}: {pair}" for pair in _low(_fill(element), next(under, "paper"))]
    return low


def test_every_text_of_the_published_report_is_read(published_report):
    drawings = re.findall(r"<svg.*?</svg>", published_report.read_text(encoding="utf-8"), re.DOTALL)
    assert len(drawings) > 40
    assert [low for svg in drawings for low in low_contrasts(svg.replace("xlink:", ""))] == []


def test_a_text_of_low_contrast_is_found():
    cell = '<path d="M 0 0 L 40 0 L 40 20 L 0 20 z" style="fill: var(--gluon)" />'
    text = '<text style="font-size: 8px; text-anchor: middle; fill: var(--ink)" x="20" y="12">32</text>'
    assert low_contrasts(f"<svg>{text}</svg>") == low_contrasts(f"<svg>{text}{cell}</svg>") == []
    assert low_contrasts(f"<svg>{cell}{text}</svg>") == [
        f"'32': {colour} on {under}"
        for _ in range(3)
        for colour, under in zip(PALETTE["ink"], PALETTE["gluon"], strict=True)
    ]
