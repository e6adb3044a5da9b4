"""What do the tensor cores' sums lose, and does the reference GPU lose the same, to the last bit?

Expectation: tensor cores cut where IEEE arithmetic rounds, so each step errs toward zero and the errors add up: they
grow with K, not with its root. How often a sum is cut is the instruction's doing: once for 16 products of 16 bits, for
8 of tf32, in WMMA for 4; and fp8 keeps 13 bits of fraction, so it is the first to show.

Method: C is 256 x 256, as in `accuracy`, with the same normal inputs, and a checksum of C's bits is kept. Without a GPU
every rung on tensor cores runs on the reference GPU, whole and as it was compiled: what it loses is a prediction. Past
K = 16384 that would take minutes each: there its sums are added directly, in the order that gave its bits at K = 1024;
s19, which chooses by shape how it adds, ends before. On a GPU the kernels run there. Equal checksums are equal bits. On
Hopper each instruction is also given VECTORS random vectors by itself, of all sorts: sums that cancel, exponents far
apart, subnormal numbers, infinities, NaN.

Run: `python -m experiments run rounding [--stage S] [--backend B] [--math tf32] [--size 256x256x4096]`
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import torch

import gemm_ref
from cuda_kernels import ceilings
from experiments.bench import parallel
from experiments.bench.verify import CheckResult, DeviceLost, Inputs, describe, load, load_all, verify
from experiments.grouping import group_pairs
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender, Gemm
from experiments.records.request import Request
from experiments.records.rows import ERROR, FAIL, HARDWARE, PASS, PREDICTED
from experiments.studies.rounding.row import RoundingRow
from experiments.studies.shared.chains import CHAINS, Adds
from experiments.studies.shared.dot_vectors import random_vectors
from experiments.studies.shared.dots import DOTS, Dots, modelled, on_gpu
from experiments.studies.shared.reference_runs import left_to_full_preset
from gemm_ref import choice
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.call.validate import gpu_of, sms_of
from gemm_ref.operands import layout_of

NAME = "rounding"
KIND = "normal"
VECTORS = 100_000
SEED = 2000  # not one of those that the rule was found with


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.is_baseline:
        return "libraries have no source that the reference GPU could run"
    if contender.math == "fp32":
        return "in fp32 there are no tensor cores"
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    return left_to_full_preset(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[RoundingRow]:
    """On a Hopper GPU a row for each instruction; then one for each contender and problem."""
    some = request.stages or request.problems or request.math or "cuda" not in (request.backends or ("cuda",))
    if request.device == "cuda" and not some and torch.cuda.get_device_capability()[0] == 9:
        yield from _instructions(bars)
    side = workloads.ACCURACY_SIDE
    depths = (workloads.ROUNDING_DEPTHS if request.device == "cuda" else workloads.ROUNDING_DEPTHS_ON_CPU)[
        request.preset
    ]
    problems = request.problems or [gemm_ref.Problem(side, side, k) for k in depths]
    bars.begin("summing", len(problems) * len(chosen))
    yield from (_on_gpu if request.device == "cuda" else _on_the_reference_gpu)(request, problems, chosen, bars)


def _on_gpu(
    request: Request, problems: Sequence[gemm_ref.Problem], chosen: Sequence[Contender], bars: Bars
) -> Iterator[RoundingRow]:
    able, broken = load_all(chosen, "cuda")
    for math in dict.fromkeys(contender.math for contender in chosen):
        for size in problems:
            inputs = Inputs.make(replace(size, math=math), KIND)
            for contender in (each for each in chosen if each.math == math):
                bars.doing(f"{contender} {inputs.problem}")
                yield _product(contender, able.get(contender), inputs, "cuda", broken.get(contender))
                bars.done()


def _on_the_reference_gpu(
    request: Request, problems: Sequence[gemm_ref.Problem], chosen: Sequence[Contender], bars: Bars
) -> Iterator[RoundingRow]:
    """Rows of whole rungs, and of the depths past ROUNDING_WHOLE, unless they were asked for, by their chains."""
    deep = [] if request.problems else [size for size in problems if size.k > workloads.ROUNDING_WHOLE]
    whole = [size for size in problems if size not in deep]
    jobs = [(contender, [(size,) for size in whole]) for contender in chosen]
    places = [(contender, size) for contender in chosen for size in whole]
    known: dict[Contender, RoundingRow] = {}
    for (contender, size), rows in zip(
        places, parallel.measure_parts(jobs, _work, bars, request.row_cache), strict=True
    ):
        yield from rows
        if size.k == workloads.ROUNDING_KNOWN:
            known[contender] = rows[0]
    for math in dict.fromkeys(contender.math for contender in chosen) if deep else ():
        alike = {contender: row for contender, row in known.items() if contender.math == math}
        tells = next(size for size in whole if size.k == workloads.ROUNDING_KNOWN)
        chains = _identify_chains(_make_inputs(replace(tells, math=math)), alike)
        for size in deep:
            inputs = _make_inputs(replace(size, math=math))
            bars.doing(f"{math} {inputs.problem}")
            yield from _sum_by_chains(inputs, chains)
            bars.done(len(alike))


def _work(contender: Contender, parts: Sequence[tuple[gemm_ref.Problem]]) -> Iterator[list[RoundingRow]]:
    fn, broken = load(contender)
    for (size,) in parts:
        yield [_product(contender, fn, _make_inputs(replace(size, math=contender.math)), "cpu", broken)]


@functools.lru_cache(maxsize=8)
def _make_inputs(problem: gemm_ref.Problem) -> Inputs:
    """Inputs that all contenders in a process share."""
    return Inputs.make(problem, KIND)


def _product(
    contender: Contender, fn: Gemm | None, inputs: Inputs, device: str, result: CheckResult | None
) -> RoundingRow:
    """One product, checked, with its checksum."""
    sums: list[str] = []

    def with_checksum(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        assert fn is not None  # else there is a result
        c = fn(a, b, out=out)
        sums.append(_checksum(c))
        return c

    result = result or verify(contender, with_checksum, inputs.on(device))
    if result.lost:
        raise DeviceLost(result.lost)
    told = {"inputs": inputs.kind, "view": HARDWARE if device == "cuda" else PREDICTED}
    bits = {"checksum": sums[-1] if result.accuracy else "", "dealt": _describe_schedule(contender, inputs, device)}
    return RoundingRow.about(NAME, contender, inputs.problem, **told, **result.columns, **bits)


def _describe_schedule(contender: Contender, inputs: Inputs, device: str) -> str:
    """What a rung chooses by shape, which decides the order in which it adds; empty for other rungs."""
    item = contender.kernel
    if item is None or item.dialect not in item.stage.tiles:
        return ""
    layouts, on = item.stage.reads_b(item.math, item.dialect), torch.device(device)
    problem = replace(inputs.problem, b_layout=layout_of(inputs.b, layouts))
    problem = choice.select_phases(item.stage, item.dialect, problem, sms_of(on), gpu_of(on))
    call = select_tile(Plan(item, problem, sms_of(on), gpu=gpu_of(on)), inputs.a, inputs.b)
    phases = f" in {problem.a_phases} phases" if problem.a_phases > 1 else ""
    return f"{call.implementation.variant} x{call.blocks}{phases}"


def _checksum(c: torch.Tensor) -> str:
    return f"{zlib.crc32(c.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()):08x}"


def _identify_chains(inputs: Inputs, rows: Mapping[Contender, RoundingRow]) -> dict[Contender, Adds]:
    """The one chain that gives the bits of each contender; none of those that choose by shape how they add."""
    math = inputs.problem.math
    found = group_pairs((_checksum(chain.product(inputs.a, inputs.b, math)), chain) for chain in CHAINS[math])
    own = {
        contender: found.get(row.checksum, [])
        for contender, row in rows.items()
        if contender.kernel and contender.dialect not in contender.kernel.stage.tiles
    }
    return {contender: chains[0] for contender, chains in own.items() if len(chains) == 1}


def _sum_by_chains(inputs: Inputs, chains: Mapping[Contender, Adds]) -> Iterator[RoundingRow]:
    """Rows of contenders by their chains alone, each of which adds once."""
    for chain in dict.fromkeys(chains.values()):
        c = chain.product(inputs.a, inputs.b, inputs.problem.math)
        accuracy = gemm_ref.check(c, inputs.a, inputs.b, math=inputs.problem.math, oracle=inputs.oracle)
        values: dict[str, Any] = {
            **asdict(accuracy),
            "inputs": inputs.kind,
            "view": PREDICTED,
            "checksum": _checksum(c),
        }
        for contender in (contender for contender, own in chains.items() if own == chain):
            yield RoundingRow.about(NAME, contender, inputs.problem, **values)


def _instructions(bars: Bars) -> Iterator[RoundingRow]:
    """A row for each; Hopper alone has all of them, and sums that are known."""
    bars.begin("vectors", len(DOTS))
    with ThreadPoolExecutor() as pool:  # what does not compile says so when it is called
        for dots in DOTS:
            pool.submit(ceilings.cubin, dots.kernel, torch.cuda.get_device_capability())
    for dots in DOTS:
        bars.doing(str(dots))
        yield _vectors(dots)
        bars.done()


def _vectors(dots: Dots) -> RoundingRow:
    """How many of the GPU's sums differ from the reference GPU's in any bit."""
    values: dict[str, Any]
    try:
        given = random_vectors(dots.kinds, dots.k, VECTORS, SEED)
        wrong = int((on_gpu(dots, given) != modelled(dots, given)).sum())
        values = {"mismatches": wrong, "status": FAIL if wrong else PASS}
        values |= {"detail": f"{wrong} of {VECTORS} sums have other bits than the reference GPU's"} if wrong else {}
    except Exception as error:  # one that breaks hides no other
        values = {"status": ERROR, "detail": describe(error)}
    return RoundingRow(experiment=NAME, stage=str(dots), backend="cuda", view=HARDWARE, vectors=VECTORS, **values)
