"""`python -m tests.experiments.report.stills` takes the explorer's stills in docs/pictures again; it needs chromium."""

import io
import tempfile
from pathlib import Path

from PIL import Image

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
            Image.open(io.BytesIO(page.picture())).convert("RGB").save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    take()
