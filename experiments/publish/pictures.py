"""Draws the pictures of studies for the runner, the command `plot` and the report.

The pictures of a machine's folder, such as that of the published data, are kept, and drawn again when something that
they follow from has changed.
"""

from __future__ import annotations

import importlib.metadata
import io
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments import processes
from experiments.publish.drawing import style
from experiments.records import cache, store, studies

_MAX_IN_PROCESS = 4  # experiments to draw in this process: starting others takes as long
_SOURCES = ("gemm_ref", "experiments/publish/drawing", "experiments/records", "experiments/studies")
_LIBRARIES = ("matplotlib", "seaborn", "numpy", "pandas")

Files = dict[str, bytes]  # file name -> content


def draw_study(name: str, folder: Path) -> Iterable[style.Picture]:
    """Calls the study's `draw`, which makes pictures of its CSV in `folder`."""
    return studies.load(name, "picture").draw(folder)


def save(name: str, folder: Path, target: Path) -> list[Path]:
    """Draws an experiment's CSV in `folder` into `target`, as `style.save` does; returns the files that it wrote."""
    with style.themed():
        return [path for stem, figure in draw_study(name, folder) for path in style.save(figure, target, stem)]


def render(name: str, folder: Path, *forms: str) -> Files:
    """Returns the pictures of an experiment's CSV in `folder` in each of the `style.forms`, cached or drawn now."""
    return _load_cached(name, folder, forms) or _render(name, folder, forms)


def render_all(places: Sequence[tuple[str, Path]], *forms: str) -> Iterator[Files]:
    """Yields `render` of each experiment and folder, in order; draws on all cores where many are not cached."""
    known = [_load_cached(name, folder, forms) for name, folder in places]
    if sum(not files for files in known) <= _MAX_IN_PROCESS:
        yield from (files or _render(*place, forms) for files, place in zip(known, places, strict=True))
        return
    with processes.pool() as pool:
        futures = [files or pool.submit(_render, *place, forms) for files, place in zip(known, places, strict=True)]
        for future in futures:
            yield future if isinstance(future, dict) else future.result()


def _render(name: str, folder: Path, forms: Sequence[str]) -> Files:
    state = _state(folder)
    with tempfile.TemporaryDirectory() as target, style.forms(*forms):
        files = {path.name: path.read_bytes() for path in save(name, folder, Path(target))}
    if _is_cacheable(folder) and state == _state(folder):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = " ".join(forms).encode()
            for file, content in files.items():
                archive.writestr(file, content)
        cache.save(_archive(name, folder), state, packed.getvalue())
    return files


def _load_cached(name: str, folder: Path, forms: Sequence[str]) -> Files:
    """As `render`, from an archive that nothing has outdated; empty where there is none that has these forms."""
    packed = cache.load(_archive(name, folder), _state(folder)) if _is_cacheable(folder) else None
    if packed is None:
        return {}
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        if not set(forms) <= set(archive.comment.decode().split()):
            return {}
        return {file: archive.read(file) for file in archive.namelist() if style.form_of(file) in forms}


def _is_cacheable(folder: Path) -> bool:
    """Whether the folder belongs to a machine; the pictures of a temporary one are not cached."""
    return folder.parent in (store.RESULTS, store.PUBLISHED.parent)


def _archive(name: str, folder: Path) -> str:
    return f"pictures-{folder.name}-{name}"


def _state(folder: Path) -> str:
    """A hash of all that pictures follow from: the data, as some show several CSVs, the code, and what draws."""
    paths = (path for path in sorted((*folder.glob("*.csv"), folder / store.ENVIRONMENT)) if path.exists())
    data = [part for path in paths for part in (path.name, path.read_bytes())]
    versions = [importlib.metadata.version(library) for library in _LIBRARIES]
    return cache.digest_files(cache.sources(*_SOURCES), *data, *versions)
