"""What do fp32 products from tensor cores lose, on which inputs, beside SGEMM and TF32?

Expectation: parts lose 2^-23 of an operand, and sums that leave the tensor core every 64 k lose less than SGEMM's one
sum for all of K. So emulated modes are below SGEMM but where products cancel at once: SGEMM has them exact. Where the
exponents of a row spread further than parts reach, the row is widened, and loses what SGEMM does.

Method: C of 64 x 64, K up to 65536; normal inputs, uniform ones on [0, 1), neighbours that cancel, and the spreads phi
that GEMMul8 is judged by; the error against the float64 oracle in the Frobenius norm, and the largest of an element
against |A| @ |B|. On a GPU the kernels and cuBLAS run there. Without one the order in which each of them adds is
followed on the CPU (`parts.chains`, whose bits are those of the kernels where no blocks share a tile): SGEMM's is taken
to be one multiply-add after another. How fast they are `tensor_cores` says, and the picture has both.

Run: `python -m experiments run emulation [--preset full] [--math fp16x3] [--backend B] [--size 64x64x65536]`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench.verify import DeviceLost, Inputs, load, refusal, verify
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import HARDWARE, PREDICTED
from experiments.studies.emulation.row import EmulationRow
from experiments.studies.shared.chains import chain_of
from gemm_ref.compute import WIDE
from gemm_ref.operands.split import in_parts, range_report

NAME = "emulation"
BESIDE = ("fp32", "tf32")  # cuBLAS' own modes with fp32 operands
SEED = 0
LEFT_OVER = 1e-3  # of a product, after the next one has cancelled it

_Shape = tuple[int, ...]
_Pair = tuple[np.ndarray, np.ndarray]


def _positive(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
    """Uniform on [0, 1): no sum cancels."""
    return dice.random(a), dice.random(b)


def _cancelling(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
    """Of each two products one after the other, all but about a thousandth of the larger one is gone at once."""
    x, y = dice.standard_normal(a), dice.standard_normal(b)
    pairs = a[1] // 2 * 2
    x[:, 1:pairs:2] = x[:, 0:pairs:2]
    y[1:pairs:2] = -y[0:pairs:2] * (1 + LEFT_OVER * dice.standard_normal((pairs // 2, b[1])))
    return x, y


def _spread(phi: float) -> Callable[[np.random.Generator, _Shape, _Shape], _Pair]:
    """(u - 1/2) exp(phi z), u uniform on [0, 1) and z normal: what GEMMul8 is judged by (arXiv 2504.08009)."""

    def make(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
        x, y = ((dice.random(shape) - 0.5) * np.exp(phi * dice.standard_normal(shape)) for shape in (a, b))
        return x, y

    return make


SPREADS: Mapping[str, Callable[[np.random.Generator, _Shape, _Shape], _Pair]] = {
    "positive": _positive,
    "cancelling": _cancelling,
    **{f"phi = {phi}": _spread(phi) for phi in range(5)},
}
KINDS = ("normal", *SPREADS)


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.math in gemm_ref.EMULATED and not contender.is_baseline:
        return "" if contender.is_default else "only the default variant of a rung takes part"
    if contender.is_reference and contender.math in BESIDE:
        return ""
    return "only modes that emulate fp32 take part, and cuBLAS in fp32 and in tf32"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[EmulationRow]:
    """A row for each contender, problem and kind of inputs."""
    side = workloads.EMULATION_SIDE
    sizes = request.problems or [gemm_ref.Problem(side, side, k) for k in workloads.EMULATION_DEPTHS[request.preset]]
    bars.begin("summing", len(sizes) * len(KINDS) * len(chosen))
    for size in sizes:
        for kind in KINDS:
            inputs = make_inputs(size, kind)
            predicted: dict[Any, torch.Tensor] = {}
            for contender in chosen:
                bars.doing(f"{contender} {size} {kind}")
                in_math = replace(inputs, problem=replace(size, math=contender.math))
                if request.device == "cuda":
                    yield _on_gpu(contender, in_math)
                else:
                    chain = chain_of(contender.math, contender.dialect)
                    if chain not in predicted:
                        predicted[chain] = chain.product(in_math.a, in_math.b, contender.math)
                    yield _predicted(contender, in_math, predicted[chain])
                bars.done()


def make_inputs(problem: gemm_ref.Problem, kind: str) -> Inputs:
    """The problem with seeded inputs of one of SPREADS, or of gemm_ref's own kinds."""
    if kind not in SPREADS:
        return Inputs.make(problem, kind)
    dice = np.random.default_rng(SEED)
    a, b = (torch.from_numpy(x.astype(np.float32)) for x in SPREADS[kind](dice, problem.a_shape, problem.b_shape))
    return Inputs(problem, kind, a, b, gemm_ref.Oracle(a, b))


def _on_gpu(contender: Contender, inputs: Inputs) -> EmulationRow:
    """One product on the GPU, checked. Raises DeviceLost."""
    fn, broken = load(contender)
    kept: list[torch.Tensor] = []

    def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        kept.append(fn(a, b, out=out))
        return kept[-1]

    with range_report() as report:
        result = broken or refusal(contender, "cuda") or verify(contender, call, inputs.on("cuda"))
    if result.lost:
        raise DeviceLost(result.lost)
    values = result.columns
    if result.accuracy:
        wide = [exponents.cpu() == WIDE for exponents in report.exponents[-1]] if report.exponents else []
        values |= _lost(inputs, kept[-1].cpu(), wide)
    return EmulationRow.about(NAME, contender, inputs.problem, inputs=inputs.kind, view=HARDWARE, **values)


def _predicted(contender: Contender, inputs: Inputs, c: torch.Tensor) -> EmulationRow:
    accuracy = gemm_ref.check(c, inputs.a, inputs.b, math=contender.math, oracle=inputs.oracle)
    emulated = contender.math in gemm_ref.EMULATED
    wide = [in_parts(x, True, contender.math)[0] == WIDE for x in (inputs.a, inputs.b.t())] if emulated else []
    values = asdict(accuracy) | _lost(inputs, c, wide)
    return EmulationRow.about(NAME, contender, inputs.problem, inputs=inputs.kind, view=PREDICTED, **values)


def _lost(inputs: Inputs, c: torch.Tensor, wide: Sequence[torch.Tensor]) -> dict[str, float]:
    """The largest error of an element against |A| @ |B|, and the share of the lines that were widened."""
    share = ((c.double() - inputs.oracle.product).abs() / inputs.oracle.scale).nan_to_num_(nan=0.0)
    found = {"max_error": share.max().item()}
    return found | ({"widened": torch.cat(list(wide)).double().mean().item()} if wide else {})
