"""Colours that stand for values can be told apart and read: by colour-blind readers too, and on the dark page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from experiments.publish.drawing import maps, style
from experiments.publish.report import colours
from experiments.records import studies

# Machado, Oliveira and Fernandes, 'A Physiologically-based Model for Simulation of Color Vision Deficiency' (2009):
# what is seen where one kind of cone lacks, from red, green and blue that are linear in light.
_MACHADO = {
    "protanopia": (0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998),
    "deuteranopia": (0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881),
    "tritanopia": (1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900),
}
SEEN = {"all cones": np.eye(3)} | {kind: np.reshape(matrix, (3, 3)) for kind, matrix in _MACHADO.items()}
_TO_XYZ = np.reshape(
    (0.4124564, 0.3575761, 0.1804375, 0.2126729, 0.7151522, 0.0721750, 0.0193339, 0.1191920, 0.9503041), (3, 3)
)
PAGES = ("light", "dark")
_PICTURES = {name: studies.load(name, "picture") for name in studies.names()}
_SCALES = {name: picture.SCALE for name, picture in _PICTURES.items() if hasattr(picture, "SCALE")}
SCALES = {"share": maps.SHARE, "cost": maps.COST} | _SCALES
_KEYS = {name: picture.COLOURS for name, picture in _PICTURES.items() if hasattr(picture, "COLOURS")}
# Colours that a key names, and no number beside them
KEYS = {name: tuple(found.values() if isinstance(found, dict) else found) for name, found in _KEYS.items()}


def _lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIELAB of `#rrggbb` as seen, under daylight (D65)."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    ratio = _TO_XYZ @ np.clip(seen @ linear, 0, 1) / _TO_XYZ.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, seen: np.ndarray) -> float:
    """CIE's distance of 1976: 2.3 is just seen where two fields touch."""
    return float(np.linalg.norm(_lab(one, seen) - _lab(other, seen)))


def test_the_distance_and_the_contrast():
    assert distance("#000000", "#ffffff", SEEN["all cones"]) == pytest.approx(100, abs=0.01)
    for seen in SEEN.values():
        assert distance("#ffffff", "#ffffff", seen) == 0 and seen.sum(axis=1) == pytest.approx(1, abs=1e-5)
    red, green = "#a03030", "#706000"  # far apart for most
    assert distance(red, green, SEEN["all cones"]) > 40 > 20 > distance(red, green, SEEN["deuteranopia"])
    assert colours.contrast("#ffffff", "#000000") == pytest.approx(21)
    assert colours.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # WCAG's well-known near miss


def _on(page: str, shades: Iterable[str]) -> list[str]:
    return [colour if page == "light" else colours.dark_twin(colour) for colour in shades]


def _shades(scale: maps.Scale, page: str) -> list[str]:
    return _on(page, (colour for _, colour in scale.steps))


def _too_near(shades: Iterable[str], least: float) -> list[tuple[str, ...]]:
    """The pairs of these colours that some reader can hardly tell apart, with the kind of eye and the page."""
    return [
        (one, other, kind, page)
        for page in PAGES
        for one, other in itertools.combinations(_on(page, shades), 2)
        for kind, seen in SEEN.items()
        if distance(one, other, seen) <= least
    ]


@pytest.mark.parametrize("name", SCALES)
def test_steps_are_apart_and_ink_is_read_on_each(name):
    shades = [colour for _, colour in SCALES[name].steps]
    assert _too_near(shades, 8) == []
    for page, ink in zip(PAGES, (style.INK, colours.INK), strict=True):
        assert all(colours.contrast(shade, ink) >= 4.5 for shade in _on(page, shades)), page


@pytest.mark.parametrize("key", KEYS)
def test_what_a_key_names_is_apart(key):
    assert len(set(KEYS[key])) == len(KEYS[key])
    assert _too_near(KEYS[key], 9) == []


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("page", PAGES)
def test_slower_and_faster_are_far_apart(page, seen):
    shades = _shades(maps.SHARE, page)
    white = [name for name, _ in maps.SHARE.steps].index("95 to 105")
    for one, other in itertools.product(shades[:white], shades[white + 1 :]):
        assert distance(one, other, SEEN[seen]) > 25, (one, other)


@pytest.mark.parametrize("page", PAGES)
def test_texts_in_a_dialect_s_colour_are_read(page):
    paper = "#ffffff" if page == "light" else colours.PAPER
    for colour in _on(page, (style.legible(look.colour) for look in style.LOOKS.values())):
        assert colours.contrast(colour, paper) >= 4.5, colour


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("page", PAGES)
def test_dialects_are_apart(page, seen):
    looks = [look.colour if page == "light" else look.dark for look in style.LOOKS.values()]
    for one, other in itertools.combinations(looks, 2):
        assert distance(one, other, SEEN[seen]) > 20, (one, other)
    assert len({look.marker for look in style.LOOKS.values()}) == len(looks)


@pytest.mark.parametrize(
    ("share", "step"),
    [(0.2, "below 25"), (24.6, "25 to 49"), (94.6, "95 to 105"), (105.4, "95 to 105"), (300, "above 125")],
)
def test_a_share_has_the_shade_of_the_number_that_is_shown(share, step):
    assert maps.SHARE.shade(round(share)) == dict(maps.SHARE.steps)[step]
