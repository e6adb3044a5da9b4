"""Draws the pictures of studies for the runner, the command `plot` and the report.

The pictures of a machine's folder, such as that of the published data, are cached, and drawn again when something that
they follow from has changed: their code, the CSVs that were read to draw them, or what is said of these CSVs' runs.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments import processes
from experiments.publish.drawing import style
from experiments.records import cache, store, studies
from gemm_ref import build

_MAX_IN_PROCESS = 4  # experiments to draw in this process: starting others takes as long
_SOURCES = ("gemm_ref", "experiments/publish/drawing", "experiments/records", "experiments/studies/shared")
_LIBRARIES = ("matplotlib", "seaborn", "numpy", "pandas")

Files = dict[str, bytes]  # file name -> content


def draw_study(name: str, folder: Path) -> Iterable[style.Picture]:
    """Calls the study's `draw`, which makes pictures of its CSV in `folder`."""
    return studies.load(name, "picture").draw(folder)


def save(name: str, folder: Path, target: Path) -> list[Path]:
    """Draws an experiment's CSV in `folder` into `target`, as `style.save` does; returns the files that it wrote."""
    with style.themed():
        return [path for stem, figure in draw_study(name, folder) for path in style.save(figure, target, stem)]


def find_published(name: str, folder: Path) -> list[Path]:
    """The pictures of an experiment that came with the data in `folder`; a package has none."""
    paths = (folder / f"{stem}{style.PNG}" for stem in studies.abouts()[name]["captions"])
    return [path for path in paths if path.exists()]


def render(name: str, folder: Path, *forms: str) -> Files:
    """Returns the pictures of an experiment's CSV in `folder` in each of the `style.forms`, cached or drawn now."""
    return _load_cached(name, folder, forms) or _render(name, folder, forms)


def render_all(places: Sequence[tuple[str, Path]], *forms: str) -> Iterator[Files]:
    """Yields `render` of each experiment and folder, in order; draws on all cores where many are not cached."""
    known = [_load_cached(*place, forms) for place in places]
    if sum(not files for files in known) <= _MAX_IN_PROCESS:
        yield from (files or _render(*place, forms) for files, place in zip(known, places, strict=True))
        return
    with processes.pool() as pool:
        futures = [files or pool.submit(_render, *place, forms) for files, place in zip(known, places, strict=True)]
        for future in futures:
            yield future if isinstance(future, dict) else future.result()


def _render(name: str, folder: Path, forms: Sequence[str]) -> Files:
    code = _digest_code(name)
    with tempfile.TemporaryDirectory() as target, style.forms(*forms), store.recorded() as asked:
        files = {path.name: path.read_bytes() for path in save(name, folder, Path(target))}
        about = {"forms": forms, "names": sorted(asked), "data": _digest_data(folder, asked)}
    if _is_cacheable(folder) and code == _digest_code(name):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = json.dumps(about).encode()
            for file, content in files.items():
                archive.writestr(file, content)
        cache.save(_archive(name, folder), code, packed.getvalue())
    return files


def _load_cached(name: str, folder: Path, forms: Sequence[str]) -> Files:
    """As `render`, from an archive that nothing has outdated; empty where there is none that has these forms."""
    packed = cache.load(_archive(name, folder), _digest_code(name)) if _is_cacheable(folder) else None
    if packed is None:
        return {}
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        about = json.loads(archive.comment)
        if not set(forms) <= set(about["forms"]) or about["data"] != _digest_data(folder, about["names"]):
            return {}
        return {file: archive.read(file) for file in archive.namelist() if style.form_of(file) in forms}


def _is_cacheable(folder: Path) -> bool:
    """Whether the folder belongs to a machine; the pictures of a temporary one are not cached."""
    return folder.parent in (store.RESULTS, store.PUBLISHED.parent)


def _archive(name: str, folder: Path) -> str:
    return f"pictures-{folder.name}-{name}"


def _digest_code(name: str) -> str:
    """A digest of the study's code, of all that pictures share, and of the libraries that draw."""
    versions = [importlib.metadata.version(library) for library in _LIBRARIES]
    own = cache.sources(*_SOURCES, f"experiments/studies/{name}")
    return cache.digest_files([*own, *cache.direct_sources("experiments/publish")], *versions)


def _digest_data(folder: Path, names: Iterable[str]) -> str:
    """A digest of the CSVs of these experiments, and of the runs of which there are rows in them."""
    paths = [store.csv_path(folder, name) for name in sorted(names)]
    data = {path.name: path.read_bytes() for path in paths if path.exists()}
    text = b"".join(data.values())
    runs = {key: run for key, run in store.read_runs(folder).items() if key.encode() in text}
    return build.digest(*(part for pair in data.items() for part in pair), json.dumps(runs, sort_keys=True))
