"""`python -m tests.experiments.report.stills` takes the explorer's stills in docs/pictures again; it needs chromium."""

import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial import cKDTree

from experiments.report.explorer.page import render
from experiments.trace import gather
from tests.experiments.report import browser

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "pictures"
STILLS = {"explorer_banks.png": "s05-cuda-conflicted", "explorer_boxes.png": "s17-cuda-default"}  # stops of the tour
SIZE = (1700, 860)  # wide enough for all views beside each other


def take() -> None:
    """Open the tour's stops and write what is in view."""
    with tempfile.TemporaryDirectory() as folder, browser.browser(Path(folder)) as page:
        path = Path(folder) / "explorer.html"
        path.write_text(render(gather().traces), encoding="utf-8")
        page.open(path, *SIZE)
        for name, kernel in STILLS.items():
            page.run(f"openPlace(document.querySelector('.tour a[href^=\"#{kernel}-\"]').hash)")
            page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            FOLDER.mkdir(exist_ok=True)
            in_a_palette(page.picture()).save(FOLDER / name, optimize=True)


def in_a_palette(png: bytes) -> Image.Image:
    """The picture in its 256 most frequent colours: a third of the bytes, and only edges of letters change a little."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    colours, places, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(counts)[-256:]]
    nearest = cKDTree(kept).query(colours)[1].astype(np.uint8)
    image = Image.fromarray(nearest[places].reshape(pixels.shape[:2]), "P")
    image.putpalette(kept.ravel().tolist())
    return image


if __name__ == "__main__":
    take()
