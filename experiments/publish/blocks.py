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
from experiments.publish.docs import devices, findings, instructions, readme
from experiments.publish.wording import docs_page
from experiments.records import store, studies
from experiments.records.request import UsageError
from gemm_ref import DIALECTS
from gemm_ref.build import CHECKOUT, write_whole

ROOT = Path(__file__).resolve().parents[2]

_TEXTS = [studies.load(name, "text") for name in studies.names() if studies.has(name, "text")]
_WRITERS = (readme, instructions, *(text for text in _TEXTS if hasattr(text, "BLOCKS")))
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


def rewrite(document: Path, blocks: tuple[str, ...], published: Path = store.PUBLISHED) -> str:
    """Returns the document's text, with its blocks as the data and the registry say.

    Raises UsageError where the file or the markers of one of `blocks` are missing.
    """
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    for name in blocks:
        begin, end = (f"<!-- {name}:{which} -->" for which in ("begin", "end"))
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise UsageError(f"{document.name} needs one line {begin} and below it one line {end}: what goes between")
        inside = f"{begin}\n{block(name, published)}\n{end}"
        text = text[: text.index(begin)] + inside + text[text.index(end) + len(end) :]
    return text


def stale(write: bool) -> list[Path]:
    """Returns all documents that are not what the published data give; they are rewritten if `write`.

    Raises UsageError as `rewrite` does, and where the documents are not here; before it writes any.
    """
    if CHECKOUT is None:
        raise UsageError("the documents are not part of the installed package: run this in a checkout of the repo")
    readme.check_ideas()
    with store.unchanging():
        texts = {path: rewrite(path, blocks) for path, blocks in DOCUMENTS.items()}
        texts |= {path: render(store.PUBLISHED) for path, render in PAGES.items()}
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed if write else ():
        write_whole(path, texts[path])
    return changed


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    for writer in _WRITERS:
        if name in writer.BLOCKS:
            return writer.block(name, published)
    stage = gemm_ref.get_stage(name)
    decided = "\n".join(f"- {DIALECTS[name].title} {finding}" for name, finding in compiler_findings(stage).items())
    numbers = [text.rung(stage, published) for text in _TEXTS if hasattr(text, "rung")]
    return "\n\n".join(filter(None, [*numbers, decided]))
