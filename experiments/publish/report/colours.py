"""The dark twin of a colour: lightness is inverted in OKLab; hue and chroma stay as far as a screen can show them.

OKLab and its matrices are Björn Ottosson's, 'A perceptual color space for image processing' (2020).
"""

from __future__ import annotations

import numpy as np

# The dark page's colours, as in base.css: white maps to PAPER, black to INK, and greys in between.
PAPER, INK = "#15181d", "#e2e6eb"

_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def dark_twin(colour: str) -> str:
    """`#rrggbb` for a dark page."""
    lightness, *hue = _lab(colour)
    grey = _lab(PAPER) + (_lab(INK) - _lab(PAPER)) * (1 - lightness)
    for chroma in np.linspace(1, 0, 21):  # chroma is reduced until sRGB contains the colour
        lab = grey + chroma * np.array([0, *hue])
        rgb = np.linalg.solve(_TO_LMS, np.linalg.solve(_TO_LAB, lab) ** 3)
        if rgb.min() >= -1e-4 and rgb.max() <= 1 + 1e-4:
            break
    return _hex(rgb)


def _lab(colour: str) -> np.ndarray:
    """Lightness, 0 to 1, and the two coordinates of hue and chroma."""
    return _TO_LAB @ np.cbrt(_TO_LMS @ _linear(colour))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21, as WCAG 2 defines it; text wants 4.5 (AA)."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ _linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _linear(colour: str) -> np.ndarray:
    """Red, green and blue of `#rrggbb`, 0 to 1, linear in light (the sRGB curve undone)."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _hex(linear: np.ndarray) -> str:
    linear = np.clip(linear, 0, 1)
    values = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(float(255 * value)):02x}" for value in values)
