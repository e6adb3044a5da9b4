"""`python -m tests.experiments.publish.stills` takes the stills in docs/pictures again; it needs chromium."""

import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console

from experiments.check import page as checked
from experiments.check.command import check
from experiments.check.subject import Options
from experiments.explore.page import render
from experiments.explore.times import by_key, gather_times
from experiments.explore.traces import gather_traces
from experiments.explore.traces.collection import first_modes
from experiments.progress import Bars
from experiments.selection import make_request
from tests.experiments.publish import browser

DOCS = Path(__file__).resolve().parents[3] / "docs"
FOLDER = DOCS / "pictures"
STILLS = {"explorer_banks.png": "s05-cuda-conflicted", "explorer_boxes.png": "s17-cuda-default"}  # stops of the tour
SIZE = (1700, 860)  # wide enough for all views beside each other


CHECKED = "check_page.png", (1400, 1000)  # of the kernel in docs/check.md


def take() -> None:
    """Open the explorer at the tour's stops, and the page of a checked kernel, and write what is in view."""
    with tempfile.TemporaryDirectory() as folder, browser.browser(Path(folder)) as page:
        path = Path(folder) / "explorer.html"
        times = by_key(gather_times(first_modes(), Bars(Console(quiet=True))))
        path.write_text(render(gather_traces().traces, times=times), encoding="utf-8")
        page.open(path, *SIZE)
        for name, kernel in STILLS.items():
            page.run(f"openPlace(document.querySelector('.tour a[href^=\"#{kernel}-\"]').hash)")
            page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            _write(name, page)
        name, size = CHECKED
        page.open(_checked(Path(folder)), *size)
        _write(name, page)


def _checked(folder: Path) -> Path:
    source, path = folder / "my_gemm.cu", folder / "check.html"
    source.write_text(re.search(r"```cpp\n(.*?)```", (DOCS / "check.md").read_text(encoding="utf-8"), re.S)[1])
    report = check(source, Options(), make_request((), (), (), "", "cpu"))
    report.path = source.name
    path.write_text(checked.render(report, source.read_text()), encoding="utf-8")
    return path


def _write(name: str, page: browser.Page) -> None:
    FOLDER.mkdir(exist_ok=True)
    Image.open(io.BytesIO(page.picture())).convert("RGB").save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    take()
