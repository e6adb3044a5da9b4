"""The forms of s19: what its kernel is compiled for, and how the tiles of C are scheduled, in every dialect.

There are thousands of forms. `make test` runs a covering array of them, in which each pair of two factors' values
occurs, and `make test-all` runs them all.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple
from unittest import mock

import pytest
import torch

import gemm_ref
from experiments.records.contenders import gemm_of, with_blocks
from gemm_ref import DIALECTS, Implementation, Problem, choice, make_inputs, ptx
from gemm_ref.choice.work import cluster_size, count_tiles
from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.config.hopper import LEAST_SHARES
from gemm_ref.epilogue import EXACT, Extras
from gemm_ref.operands import as_layout, phases_at
from tests.matrices import Pairs

RUNG = gemm_ref.get_stage("s19")
FULL = {"alpha": 0.5, "c": True, "beta": -2.0, "bias": "fp32", "activation": "relu"}
# The arguments of a call; of bias how it is stored, and of c whether there is one.
EPILOGUES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "plain": {},
        "bias": {"bias": "as_c"},
        "bias_gelu": {"bias": "as_c", "activation": "gelu"},
        "c": {"c": True},
        "bias_fp32_relu": {"bias": "fp32", "activation": "relu"},
        "c_silu": {"c": True, "beta": 0.5, "activation": "silu"},
        "alpha": {"alpha": -0.25},
        "bias_c_gelu_tanh": {"bias": "as_c", "c": True, "activation": "gelu_tanh"},
        "full": FULL,
    }
)
# Sizes that are no multiples of a tile or a slice, with more slices than most tiles have stages.
ROWS = 77
COLUMNS = {"unit": 136, "threads": 138}  # who stores C: the TMA unit needs rows of whole vectors
# In how many phases A is read: in 1, in 2 or 4, in 4 or 8. Of elements of up to two bytes, and of four.
DEPTHS = {"none": (264, 136), "some": (198, 102), "most": (131, 67)}


class Form(NamedTuple):
    """One form."""

    dialect: str
    tile: str
    math: str
    layout: str = "kn"  # of B
    stores: str = "unit"
    phases: str = "none"
    # "whole": a cluster for each tile; "shared": three clusters share the tiles that rounds leave over; "together": as
    # many clusters for each tile as add it together, or as it has slices
    schedule: str = "whole"
    epilogue: str = "plain"

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def config(self) -> Config:
        return RUNG.config(self.tile, self.dialect)

    @property
    def problem(self) -> Problem:
        depth = DEPTHS[self.phases][MATHS[self.math].dtype.itemsize == 4]
        return Problem(ROWS, COLUMNS[self.stores], depth, self.math, self.layout)

    @property
    def exists(self) -> bool:
        """Whether there is such a kernel: A is read in phases with B by rows, and without a c."""
        if self.config.CLUSTER_K > 1 and self.schedule != "whole":
            return False
        if self.schedule == "together" and not self.config.ADDS_TOGETHER:
            return False
        in_phases = self.dialect in RUNG.tma.a_in_phases and phases_at(self.problem) > 1
        return self.phases == "none" or (in_phases and not EPILOGUES[self.epilogue].get("c"))

    @property
    def properties(self) -> list[Hashable]:
        """What a covering array has: each tile, each epilogue, and each pair of the values of two factors that meet.

        The main loop depends on the layout of B and on the compute type, and the store on the epilogue and on the size
        of C's elements; these two groups of factors do not meet, but each meets those that both depend on. Of a tile
        the orientation, the cluster and the height are factors. In the twins, which take seconds to compile, the
        height is one only where the code depends on it: in Gluon's main loop, which one or two warpgroups execute. The
        activations are computed alike for all others, so there they are no factor.
        """
        config, epilogue, in_cuda = self.config, EPILOGUES[self.epilogue], self.dialect == "cuda"
        both = (
            config.is_transposed(self.math, self.layout), (config.CLUSTER_M, config.CLUSTER_K),
            config.NARROW > 0, config.uses_mma_sync, self.stores, self.phases, self.schedule,
        )  # fmt: skip
        loop = (None if self.dialect == "triton" else config.BLOCK_M, self.math, self.layout)
        store = (
            config.BLOCK_M if in_cuda else None, MATHS[self.math].out_dtype.itemsize, epilogue.get("bias"),
            "c" in epilogue, "alpha" in epilogue, not epilogue, epilogue.get("activation") if in_cuda else None,
        )  # fmt: skip
        pairs = [Pairs((*both, *others), self.dialect) for others in (loop, store)]
        return [(self.dialect, self.tile), (self.dialect, self.epilogue), *pairs]

    def gemm(self):
        """The kernel, with the clusters that its schedule has."""
        problem = self.problem
        if self.phases != "none":
            problem = replace(problem, a_phases=phases_at(problem))
        tiles_m, tiles_n, _ = count_tiles(self.config, problem)
        tiles = tiles_m * tiles_n
        clusters = {"whole": tiles, "shared": 3, "together": LEAST_SHARES * tiles}[self.schedule]
        return load(any_shape(self.dialect, self.tile, self.math), clusters)


def any_shape(dialect: str, tile: str, math: str = "bf16") -> Implementation:
    """A tile of s19."""
    return Implementation(RUNG, tile, dialect, math)


def load(item: Implementation, clusters: int | None = None):
    """`gemm(a, b, out=None, **extras)` of a kernel, on so many clusters, or on those that the shape selects.

    The test is skipped where Triton is not installed.
    """
    if DIALECTS[item.dialect].package == "triton_kernels":
        pytest.importorskip("triton")
    return gemm_of(item) if clusters is None else with_blocks(item, clusters * cluster_size(item.config)).load()


def all_forms() -> list[Form]:
    forms = []
    for dialect, tiles in RUNG.tiles.items():
        for math in RUNG.maths:
            rest = RUNG.reads_b(math, dialect), COLUMNS, DEPTHS, ("whole", "shared", "together"), EPILOGUES
            # small tiles come first: they compile faster, and of equal forms `cover` selects the first
            forms += [Form(dialect, tile, math, *each) for tile in reversed(tiles) for each in itertools.product(*rest)]
    return [form for form in forms if form.exists]


def extras_of(epilogue: Mapping, problem: Problem, device: str = "cpu", kind: str = "integers") -> Extras:
    """bias and c as the epilogue says, with numbers that a kernel adds without rounding where A and B are integers."""
    dtype, numbers = MATHS[problem.math].out_dtype, itertools.count()

    def random(*shape: int) -> torch.Tensor:
        x, _ = make_inputs(Problem(shape[0], 1, shape[1]), kind, seed=next(numbers), device=device)
        return x

    bias, c = random(1, problem.n)[0], random(problem.m, problem.n)
    stored = {"as_c": bias.to(dtype), "fp32": bias, None: None}
    given = {"bias": stored[epilogue.get("bias")], "c": c.to(dtype) if epilogue.get("c") else None}
    return Extras(**{**epilogue, **given})


def check_exactly(gemm, problem: Problem, epilogue: Mapping, device: str = "cpu", layout: str = "kn") -> None:
    """Check what a kernel makes of integers, or of other numbers where it rounds them; no detector finds anything."""
    exact = epilogue.get("activation") in EXACT
    kind = "integers" if exact else "normal"
    a, b = make_inputs(problem, kind, seed=problem.n, device=device)
    extras = extras_of(epilogue, problem, device, kind)
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm, a, as_layout(b, layout), math=problem.math, exact=exact, extras=extras)
    assert not detectors.findings


@contextlib.contextmanager
def in_phases() -> Iterator[None]:
    """Inside, each A that can be read in phases is, whether that is faster or not; and one is."""
    with mock.patch.object(choice, "select_phases") as select:
        select.side_effect = lambda stage, dialect, problem, *_: replace(problem, a_phases=phases_at(problem))
        yield
    assert select.called
