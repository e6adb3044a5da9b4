"""A contender: one kernel of the registry or one baseline, as something that can be called."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gemm_ref
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES, Baseline
from gemm_ref.config import Config
from gemm_ref.rung import DEFAULT_VARIANT

if TYPE_CHECKING:
    import torch

    from gemm_ref.call import Launcher, Plan

Gemm = Callable[..., "torch.Tensor"]  # fn(a, b, out=None) -> C
BATCH_INVARIANT, OR_SGEMM = "batch_invariant", "or_sgemm"  # the variants of the functions of these names


@dataclass(frozen=True)
class Contender:
    """The subject of a row of results. `load` returns the callable, and imports its package only then."""

    stage: str  # a rung's id or a baseline's name; the name of a kernel that is brought (experiments.check.place)
    variant: str
    backend: str  # cuda and triton for the rungs; a library's name for the baselines
    dialect: str  # empty for baselines
    math: str
    devices: tuple[str, ...]
    load: Callable[[], Gemm] = field(compare=False, repr=False)
    config: Config | None = None
    build: Callable[[tuple[int, int]], object] | None = field(default=None, compare=False, repr=False)
    kernel: gemm_ref.Implementation | None = None  # of the registry; None for baselines and for what is brought

    @property
    def is_baseline(self) -> bool:
        return not self.dialect

    @property
    def is_reference(self) -> bool:
        """Whether speeds are a share of this contender's: cuBLAS, or its SGEMM for emulated compute types."""
        return self.backend == "cublas"

    @property
    def home(self) -> str:
        """The device on which it is timed: the GPU for rungs, their own device for baselines."""
        return self.devices[0] if self.is_baseline else "cuda"

    @property
    def is_default(self) -> bool:
        """Whether it is the default variant of its rung in its dialect; baselines are."""
        if self.is_baseline or self.stage not in gemm_ref.STAGES:
            return True
        return self.variant == gemm_ref.STAGES[self.stage].find_variant(DEFAULT_VARIANT, self.dialect)

    @property
    def columns(self) -> Mapping[str, Any]:
        """The values of its rows' additional columns, by column."""
        return {}

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Returns why a GPU of this compute capability cannot run it, or None if it can."""
        if self.stage in BASELINES:
            return BASELINES[self.stage].refusal(capability)
        return None if self.stage not in gemm_ref.STAGES else gemm_ref.get_stage(self.stage).refusal(capability)

    def __str__(self) -> str:
        variant = "" if self.variant == DEFAULT_VARIANT else f":{self.variant}"
        math = "" if self.math == "fp32" else self.math
        return " ".join(filter(None, (f"{self.stage}{variant}", self.dialect, math)))


def contenders() -> list[Contender]:
    """Returns every kernel of the registry in ladder order, followed by every baseline."""
    rungs = [_rung(item, item.variant, functools.partial(gemm_of, item)) for item in gemm_ref.implementations()]
    baselines = [
        Contender(
            stage=item.name,
            variant=DEFAULT_VARIANT,
            backend=item.backend,
            dialect="",
            math=math,
            devices=(item.device,),
            load=functools.partial(_baseline, item, math),
            build=functools.partial(_build_baseline, item.name, math) if item.device == "cuda" else None,
        )
        for item in BASELINES.values()
        for math in item.maths
    ]
    return rungs + baselines


def with_blocks(tile: gemm_ref.Implementation, blocks: int) -> Contender:
    """Returns a contender with one of a rung's tiles, which is launched with `blocks` blocks for any shape."""
    return _rung(tile, f"{tile.variant} x{blocks}", functools.partial(_gemm_with_blocks, tile, blocks))


def batch_invariant(rung: Contender) -> Contender:
    """Returns the contender whose results have the same bits in a row for any number of rows."""
    return replace(rung, variant=BATCH_INVARIANT, load=lambda: functools.partial(rung.load(), batch_invariant=True))


def or_sgemm(contender: Contender) -> Contender:
    """Returns the call that names no rung in place of a rung of an emulated compute type, and any other as it is."""
    if contender.kernel is None or contender.math not in gemm_ref.EMULATED:
        return contender
    return replace(
        contender,
        variant=OR_SGEMM,
        load=lambda: functools.partial(contender.load(), stage=None, variant=DEFAULT_VARIANT),
    )


def _rung(item: gemm_ref.Implementation, variant: str, load: Callable[[], Gemm]) -> Contender:
    return Contender(
        stage=item.stage.id,
        variant=variant,
        backend=item.backend,
        dialect=item.dialect,
        math=item.math,
        devices=("cpu", "cuda"),  # CPU tensors run on the reference GPU
        load=load,
        config=item.config,
        build=functools.partial(_build, item) if DIALECTS[item.dialect].compiled_ahead else None,
        kernel=item,
    )


def build_ahead(chosen: Iterable[Contender], capability: tuple[int, int]) -> None:
    """Compiles in parallel what the contenders need, so that no first call waits for nvcc.

    What cannot run here is left out, and what does not compile says so when it is called.
    """
    with ThreadPoolExecutor() as pool:
        for contender in chosen:
            if contender.build and contender.refusal(capability) is None:
                pool.submit(contender.build, capability)


def _build(item: gemm_ref.Implementation, capability: tuple[int, int]) -> None:
    _package(item).build_all([item], capability)


def _build_baseline(name: str, math: str, capability: tuple[int, int]) -> None:
    from gemm_ref.baselines import products

    products.build_baseline(name, math, capability)


def _baseline(item: Baseline, math: str) -> Gemm:
    from gemm_ref.baselines import products

    function = products.FUNCTIONS[item.name]
    return functools.partial(function, math=math) if len(item.maths) > 1 else function


def gemm_of(item: gemm_ref.Implementation) -> Gemm:
    """Returns `fn(a, b, out=None)` for one kernel of the registry, whose package it imports."""
    names = {"stage": item.stage.id, "variant": item.variant, "math": item.math}
    if item.dialect != item.backend:
        names["dialect"] = item.dialect
    return functools.partial(_package(item).gemm, **names)


def _gemm_with_blocks(tile: gemm_ref.Implementation, blocks: int) -> Gemm:
    from gemm_ref.call.execute import run  # with torch
    from gemm_ref.epilogue import Extras

    package = _package(tile)

    def prepare(plan: Plan, *matrices: torch.Tensor) -> Launcher:
        return package.prepare(plan.with_blocks(blocks), *matrices)

    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, **extras: Any) -> torch.Tensor:
        names = (tile.stage.id, tile.dialect, tile.variant, tile.math)
        return run(a, b, out, prepare, *names, extras=Extras(**extras))

    return fn


def _package(item: gemm_ref.Implementation) -> ModuleType:
    return importlib.import_module(DIALECTS[item.dialect].package)
