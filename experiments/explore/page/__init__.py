"""The explorer's page, one file beside the report: a template, a style sheet, scripts, sources and traces.

Traces and sources are stored deflated; the browser opens them when their kernel is asked for. `trace.js` and `uses.js`
say what a trace means, `words.js` says it in sentences, and the others draw.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import numpy as np
from markupsafe import Markup

from experiments.explore.traces.record import Trace, plain
from experiments.publish.pages import deflate, make_page_templates
from experiments.publish.pages.coloured import TimedFile
from experiments.publish.report.sources import read_sources
from gemm_ref import DIALECTS, STAGES
from gemm_ref.launch import cdiv
from gemm_ref.rung import DEFAULT_VARIANT

_FOLDER = Path(__file__).resolve().parent
# In the order in which they build on each other.
_SCRIPTS = (
    *("trace", "uses", "place", "colours", "picture", "words"),
    *("score", "matrices", "shared", "request", "panels", "app"),
)
_NO_TIMES: Mapping[str, TimedFile] = MappingProxyType({})
_USES = (
    ("idle", "not in use"),
    ("held", "in shared memory"),
    ("block", "touched by the block"),
    ("warp", "by the warp"),
    ("lane", "by the lane"),
)
# Where the tour goes: kernel, the kind of step and the array (any, if empty) that it begins at, and what is seen there.
TOUR = (
    ("s01-cuda-default", "load", "A", "s01: 32 sectors"),
    ("s02-cuda-default", "load", "B", "s02: 4 sectors"),
    ("s04-cuda-default", "store", "a_smem", "s04: staging"),
    ("s05-cuda-conflicted", "load", "b_smem", "s05: conflicted"),
    ("s05-cuda-transposed", "store", "a_smem", "transposed"),
    ("s05-cuda-padded", "store", "a_smem", "padded"),
    ("s05-cuda-swizzled", "store", "a_smem", "swizzled"),
    ("s09-cuda-two_blocks", "load", "a_smem", "s09: quadrants"),
    ("s12-cuda-wide", "async store", "", "s12: a ring of copies"),
    ("s17-cuda-default", "bulk load", "", "s17: TMA boxes"),
)


def render(traces: Iterable[Trace], report: str = "report.html", times: Mapping[str, TimedFile] = _NO_TIMES) -> str:
    """The whole page.

    traces: in the order in which the page offers them; report: the file beside it; times: of kernels, by `key`.
    """
    shown = {key(trace): trace for trace in traces}
    index = index_of(shown, times)
    files = {source.path: source.html for stage in STAGES.values() for source in read_sources(stage)}
    paths = dict.fromkeys(trace.file for trace in shown.values())
    template = make_page_templates(_FOLDER).get_template("explorer.html.j2")
    return template.render(
        script=Markup("\n".join(_text(f"{name}.js") for name in _SCRIPTS)),
        index=Markup(json.dumps(index).replace("<", r"\u003c")),
        rungs=index["rungs"],
        report=report,
        uses=_USES,
        tour=[(_place(shown[name], kind, array), text) for name, kind, array, text in TOUR if name in shown],
        sources={path: deflate(files[path].encode()) for path in paths},
        traces={name: deflate(_stored(trace)) for name, trace in shown.items()},
    )


def key(trace: Trace) -> str:
    """The fragment that opens a kernel: s09-cuda-two_blocks."""
    return key_of(trace.stage, trace.dialect, trace.variant)


def key_of(stage: str, dialect: str, variant: str) -> str:
    """The `key` of a kernel, by the id of its rung."""
    return f"{stage.split('_')[0]}-{dialect}-{variant}"


def _place(trace: Trace, kind: str, array: str) -> str:
    """The fragment of the first step of a kind, on an array if one is named; ValueError where there is none."""
    operations = [trace.operations[number] for number in trace.steps.operation.tolist()]
    for step, operation in enumerate(operations):
        if operation.kind == kind and array in ("", operation.array):
            is_first = operation.line not in [earlier.line for earlier in operations[:step]]
            return f"#{key(trace)}-line-{operation.line}" + ("" if is_first else f"-step-{step}")
    raise ValueError(f"no step of {key(trace)} is a {kind} of {array or 'any array'}")


def index_of(shown: Mapping[str, Trace], times: Mapping[str, TimedFile]) -> dict:
    """What the page knows of its kernels before it opens one: those of `shown`, by their `key`."""
    kernels = [
        {
            "key": name,
            "rung": name.split("-")[0],
            "dialect": trace.dialect,
            "variant": trace.variant,
            "best": trace.variant == STAGES[trace.stage].find_variant(DEFAULT_VARIANT, trace.dialect),
            "file": trace.file,
            "time": asdict(times[name]) if name in times else None,
        }
        for name, trace in shown.items()
    ]
    stages = {name.split("-")[0]: STAGES[trace.stage] for name, trace in shown.items()}
    return {
        "kernels": kernels,
        "rungs": {number: {"title": stage.title, "idea": stage.idea} for number, stage in stages.items()},
        "dialects": {name: dialect.title for name, dialect in DIALECTS.items()},
        "start": "s04-cuda-default",
    }


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _stored(trace: Trace) -> bytes:
    """A trace as one stream: the length of the JSON, the JSON, and the numbers of all arrays, each 4 bytes.

    In the JSON an array is {"at": ..., "size": ...} among the numbers, of which each is stored as the difference to the
    one before it: places go up in equal steps.
    """
    arrays: list[np.ndarray] = []

    def added(values: np.ndarray) -> dict[str, int]:
        arrays.append(values.astype(np.int64).ravel())
        return {"at": sum(each.size for each in arrays[:-1]), "size": values.size}

    text = json.dumps(plain(trace, added), separators=(",", ":"))
    head = text.ljust(cdiv(len(text), 4) * 4).encode("ascii")
    numbers = np.concatenate(arrays)
    return struct.pack("<i", len(head)) + head + np.diff(numbers, prepend=numbers[:1] * 0).astype("<i4").tobytes()
