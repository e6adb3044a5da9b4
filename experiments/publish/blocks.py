"""The generated blocks of the README and of docs/, and whole pages, from the published data and the registry.

A block stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`: a rung's id names its own numbers (in fp32) and
what the compilers decided; the others are written by modules of `docs` and by the `text.py` of studies.
"""

from __future__ import annotations

from pathlib import Path

import gemm_ref
from experiments.grouping import group_pairs
from experiments.publish import gpus
from experiments.publish.compilers import compiler_findings
from experiments.publish.docs import cost, devices, findings, instructions, readme
from experiments.publish.wording import docs_page
from experiments.records import store, studies
from experiments.records.request import UsageError
from gemm_ref import DIALECTS
from gemm_ref.build import CHECKOUT, write_whole

ROOT = Path(__file__).resolve().parents[2]

_TEXTS = [studies.load(name, "text") for name in studies.names() if studies.has(name, "text")]
_WRITERS = (readme, cost, instructions, *(text for text in _TEXTS if hasattr(text, "BLOCKS")))
_OF_RUNGS = {stage.id: docs_page(stage) for stage in gemm_ref.STAGES.values()}
_PLACES = {name: page for writer in _WRITERS for name, page in writer.BLOCKS.items()} | _OF_RUNGS  # block -> page
DOCUMENTS = {  # file -> the blocks that it must have
    (ROOT if page.startswith("README") else ROOT / "docs") / page: tuple(names)
    for page, names in group_pairs((page, name) for name, page in _PLACES.items()).items()
}
PAGES = {  # file -> what writes the whole of it from a folder of results
    ROOT / "docs" / "findings.md": findings.render,
    ROOT / "docs" / "devices.md": devices.render,
    ROOT / "gemm_ref" / "clock" / "gpus.toml": gpus.render,
}


class MarkerError(UsageError):
    """A document lacks the markers of a generated block."""


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def _marked(document: Path, blocks: tuple[str, ...]) -> str:
    """The document's text. Raises MarkerError where the file or the markers of one of `blocks` are missing."""
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    for begin, end in map(_markers, blocks):
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise MarkerError(f"{document.name} needs one line {begin} and below it one line {end}: what goes between")
    return text


def update(document: Path, blocks: tuple[str, ...], write: bool, published: Path = store.PUBLISHED) -> bool:
    """Whether a block in `document` differs from what the data and the registry say; rewrites them if `write`.

    Raises MarkerError where the file or the markers of one of `blocks` are missing.
    """
    old = new = _marked(document, blocks)
    for name in blocks:
        begin, end = _markers(name)
        text = f"{begin}\n{block(name, published)}\n{end}"
        new = new[: new.index(begin)] + text + new[new.index(end) + len(end) :]
    if write and new != old:
        write_whole(document, new)
    return new != old


def update_page(document: Path, write: bool, published: Path = store.PUBLISHED) -> bool:
    """Whether one of PAGES differs from what the data say; rewrites it if `write`."""
    old = document.read_text(encoding="utf-8") if document.exists() else ""
    new = PAGES[document](published)
    if write and new != old:
        write_whole(document, new)
    return new != old


def stale(write: bool) -> list[Path]:
    """All documents that are not what the published data give; they are rewritten if `write`.

    Raises MarkerError and UsageError as `update` does, and where the documents are not here; before it writes any.
    """
    if CHECKOUT is None:
        raise UsageError("the documents are not part of the installed package: run this in a checkout of the repo")
    readme.check_ideas()
    for path, blocks in DOCUMENTS.items():
        _marked(path, blocks)
    with store.unchanging():
        changed = [path for path, blocks in DOCUMENTS.items() if update(path, blocks, write)]
        return changed + [path for path in PAGES if update_page(path, write)]


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    for writer in _WRITERS:
        if name in writer.BLOCKS:
            return writer.block(name, published)
    stage = gemm_ref.get_stage(name)
    decided = "\n".join(f"- {DIALECTS[name].title} {finding}" for name, finding in compiler_findings(stage).items())
    numbers = [text.rung(stage, published) for text in _TEXTS if hasattr(text, "rung")]
    return "\n\n".join(filter(None, [*numbers, decided]))
