"""Why a result is wrong: hypotheses, each tested, and reported only where it explains every element of C."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

import gemm_ref
from experiments.check.messages import Message, Why, message
from experiments.check.subject import FEW_MULTIPROCESSORS, PLAIN, Subject, Trial, attempt
from gemm_ref import ptx
from gemm_ref.epilogue import Extras
from gemm_ref.ptx.detect.finding import MISSED, UNWRITTEN

ROW_LENGTH = {"A": "K", "B": "N", "C": "N"}  # row-major
_SLICES = (128, 64, 32, 16, 8, 4, 2)
# Instructions that leave fp32 as many bits, and those that add in fp16.
_CUTS = {"tf32": re.compile(r"\.tf32"), "fp16": re.compile(r"^cvt\.r\w\.f16(?:x2)?\.f32")}
_TO_16_BITS = re.compile(r"^cvt\.r\w\.(?:satfinite\.)?(b?)f16(?:x2)?\.f32")
_HALF_SUM = re.compile(r"mma.*(?<!\.f32)\.f16\.f16$|^(?:fma|add)\S*\.f16")
_MAX_SIDE = 128  # of a cube whose double is tried: a second or two
_DEEP = 1024  # products, whose positive sums are some 5000
_NEAR = 1e-3  # a factor so near to a whole number is one


class Rounding(NamedTuple):
    """A conversion of fp32: to which type, and in which line."""

    to: str
    line: int


def explain(subject: Subject, trial: Trial) -> Message | None:
    """Returns the most specific reason for a wrong result with `integers` as inputs; None where no hypothesis holds."""
    if found := _exchanged_grid(subject, trial):
        return found
    if trial.fault:  # C is as it was when the run stopped
        return None
    hypotheses = (_nothing_written, _part_of_k, _other_product, _multiple, _sum_not_zeroed, _moved, _pattern)
    return next(filter(None, (hypothesis(subject, trial) for hypothesis in hypotheses)), None)


def several_tiles(subject: Subject, trial: Trial) -> Message | None:
    """Returns the reason of a persistent kernel that is right with a block for each tile alone."""
    whole = subject.on_whole_gpu
    if whole is subject or not attempt(whole, trial.problem).right:
        return None
    return message(Why.SEVERAL_TILES, multiprocessors=FEW_MULTIPROCESSORS)


def _exchanged_grid(subject: Subject, trial: Trial) -> Message | None:
    exchanged = subject.transpose_grid()
    if exchanged is None or trial.problem.m == trial.problem.n:
        return None
    other, grid = exchanged
    return message(Why.GRID_EXCHANGED, grid=grid) if attempt(other, trial.problem).right else None


def _nothing_written(subject: Subject, trial: Trial) -> Message | None:
    missed = sum(finding.count for finding in trial.findings if finding.kind == MISSED)
    return message(Why.NOTHING_WRITTEN) if missed == trial.c.numel() else None


def _part_of_k(subject: Subject, trial: Trial) -> Message | None:
    """Whether C is a product over fewer k: A[:, :k] @ B[:k, :]."""
    a, b, depth = trial.a.double(), trial.b.double(), trial.problem.k
    got = trial.c.double()
    for step in _SLICES:
        part = depth // step * step
        if part < depth and step <= depth + 1 and torch.equal(got, a[:, :part] @ b[:part]):
            return message(Why.K_TAIL_DROPPED, step=step, missing=depth - part, depth=depth)
    for part in range(depth):
        if torch.equal(got[0], a[0, :part] @ b[:part]) and torch.equal(got, a[:, :part] @ b[:part]):
            return message(Why.FIRST_PRODUCTS_ONLY, part=part, depth=depth)
    return None


def _other_product(subject: Subject, trial: Trial) -> Message | None:
    """Whether C is the product of other matrices, or is stored in another order."""
    m, n, k = trial.problem.m, trial.problem.n, trial.problem.k
    a, b, got = trial.a.double(), trial.b.double(), trial.c.double()
    want, transposed_a, transposed_b = a @ b, a.reshape(k, m).T, b.reshape(n, k).T
    products = [
        (message(Why.C_TRANSPOSED), want.T.reshape(m, n)),
        (message(Why.A_TRANSPOSED), transposed_a @ b),
        (message(Why.B_TRANSPOSED), a @ transposed_b),
        (message(Why.BOTH_TRANSPOSED), transposed_a @ transposed_b),
    ]
    if m == n == k:
        products.append((message(Why.OPERANDS_EXCHANGED), b @ a))
    for matrix, x, others in (("A", a, {"M": m, "N": n}), ("B", b, {"M": m, "K": k})):
        rows, columns = x.shape
        for size, length in others.items():
            if length != columns and (rows - 1) * length + columns <= rows * columns:
                read = x.reshape(-1).as_strided((rows, columns), (length, 1))
                product = read @ b if matrix == "A" else a @ read
                reason = message(Why.WRONG_ROW_LENGTH, matrix=matrix, size=size, right=ROW_LENGTH[matrix])
                products.append((reason, product))
    return next((reason for reason, product in products if torch.equal(got, product)), None)


def _sum_not_zeroed(subject: Subject, trial: Trial) -> Message | None:
    """Whether every sum is off by one constant, whatever is added up."""
    off = trial.c.double() - trial.a.double() @ trial.b.double()
    first = off.flatten()[0]
    if off.numel() < 2 or not bool((off == first).all()):
        return None
    other = attempt(subject, trial.problem, "ones")
    if other.fault or not bool((other.c.double() == trial.problem.k + first).all()):
        return None
    return message(Why.SUM_NOT_ZEROED, offset=float(first))


def _moved(subject: Subject, trial: Trial) -> Message | None:
    """Whether all the right numbers are there in other places, or the right count of products of other elements."""
    (m, n), (rows, columns) = trial.c.shape, subject.tile
    want, got = trial.a.double() @ trial.b.double(), trial.c.double()
    if torch.equal(want.flatten().sort()[0], got.flatten().sort()[0]):
        if rows == columns and not m % rows and not n % columns:
            tiles = want.reshape(m // rows, rows, n // columns, columns).permute(0, 3, 2, 1)
            if torch.equal(tiles.reshape(want.shape), got):
                return message(Why.TILES_TRANSPOSED, rows=rows, columns=columns)
        return message(Why.ELEMENTS_MOVED)
    if not attempt(subject, trial.problem, "ones").right:
        return None
    a_is_right, b_is_right = (attempt(subject, trial.problem, kind).right for kind in ("b_ones", "a_ones"))
    matrices = "A and of B" if a_is_right == b_is_right else "B" if a_is_right else "A"
    return message(Why.OTHER_ELEMENTS, matrices=matrices)


def _pattern(subject: Subject, trial: Trial) -> Message | None:
    """Where the wrong elements are, if that has a simple form."""
    wrong = trial.c.double() != trial.a.double() @ trial.b.double()
    if bool(wrong.all()):
        return message(Why.ALL_WRONG)
    for part, mask in _masks(trial.problem.m, trial.problem.n, *subject.tile):
        if torch.equal(wrong, mask):
            return message(Why.PATTERN, part=part)
    for code, axis in ((Why.WHOLE_ROWS, 1), (Why.WHOLE_COLUMNS, 0)):
        if bool((wrong.any(axis) == wrong.all(axis)).all()):
            return message(code, indices=_list(wrong.all(axis)))
    return None


def _masks(m: int, n: int, rows: int, columns: int) -> Iterator[tuple[str, torch.Tensor]]:
    row, col = torch.arange(m)[:, None].expand(m, n), torch.arange(n)[None, :].expand(m, n)
    below, right = row >= m // rows * rows, col >= n // columns * columns
    yield f"the rows of the last, partial tiles (of {rows} rows)", below
    yield f"the columns of the last, partial tiles (of {columns} columns)", right
    yield f"the last, partial tiles (of {rows} x {columns})", below | right
    for size in (2, 4, 8):
        yield f"the last N % {size} columns", col >= n // size * size
        yield f"the last M % {size} rows", row >= m // size * size


def _list(lines: torch.Tensor) -> str:
    found = lines.nonzero().flatten().tolist()
    return ", ".join(map(str, found[:8])) + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def reads_c(trial: Trial) -> bool:
    """Whether elements of C were read, or atomically added to, before anything was written there."""
    missed = any(finding.kind == MISSED for finding in trial.findings)
    return _read_is_detected(trial) or bool(trial.wrong) and not missed and bool(trial.c.isnan().all())


def _read_is_detected(trial: Trial) -> bool:
    return any(finding.kind == UNWRITTEN and "reads C[" in finding.text for finding in trial.findings)


def adds_to_c(subject: Subject, trial: Trial) -> Message | None:
    """Returns the reason of a kernel that adds to C as it was before; None if it does not."""
    if not reads_c(trial) or not bool((trial.a.double() @ trial.b.double()).any()):  # zeros are right by themselves
        return None
    if attempt(subject, trial.problem, zeroed=True).right:
        return message(Why.NEEDS_ZEROED_C)
    return message(Why.ADDS_TO_C) if _read_is_detected(trial) else None


def find_finish(subject: Subject, trial: Trial) -> Extras:
    """Returns what a kernel does to all elements of C beside the product, if nothing else is wrong: factor or relu."""
    if trial.wrong and trial.scales != PLAIN:
        trial = attempt(subject, trial.problem, scales=PLAIN, zeroed=True)
    if not trial.wrong:
        return Extras()
    got, want = trial.c.double(), trial.a.double() @ trial.b.double()
    if torch.equal(got, want.relu()):
        return Extras(activation="relu")
    factor = _factor(trial)
    # A whole number, or another sign, comes rather from a wrong sum than from an intended factor.
    return Extras(alpha=factor) if factor > 0 and abs(factor - round(factor)) > _NEAR else Extras()


def _factor(trial: Trial) -> float:
    """The factor of every element of the product in C, to the precision of C; 0 where it is not one number."""
    got, want = trial.c.double(), trial.a.double() @ trial.b.double()
    factor = float((got * want).sum() / (want * want).sum())
    precision = torch.finfo(trial.c.dtype).eps if trial.c.is_floating_point() else 0.0
    close = (got - factor * want).abs() <= 2 * precision * abs(factor) * want.abs()
    return factor if bool(close.all()) else 0.0


def _multiple(subject: Subject, trial: Trial) -> Message | None:
    factor = _factor(trial)
    is_whole = round(factor) > 1 and abs(factor - round(factor)) <= _NEAR
    return message(Why.MULTIPLIED, factor=factor) if is_whole else None


def ignored_scales(subject: Subject, trial: Trial) -> Message | None:
    """Returns the reason of a kernel that is right for alpha = 1, beta = 0 and no bias, and wrong for the trial's."""
    if not attempt(subject, trial.problem, scales=PLAIN, zeroed=True).right:
        return None
    wrong = [
        name
        for name, value in vars(trial.scales).items()
        if value != getattr(PLAIN, name)
        and not attempt(subject, trial.problem, scales=replace(PLAIN, **{name: value}), zeroed=True).right
    ]
    names = {"ALPHA": "alpha = 1", "BETA": "beta = 0", "BIAS": "a bias of zeros"}
    plain = " and ".join(names[name] for name in subject.scalars)
    formula = "alpha * A @ B + beta * C" + " + bias" * ("BIAS" in subject.scalars)
    return message(Why.SCALARS_IGNORED, plain=plain, wrong=" or ".join(wrong) or "pair", formula=formula)


def reduced_precision(kernels: Iterable[ptx.DecodedKernel]) -> tuple[str, int, bool, Rounding | None]:
    """Returns what fp32 operands are rounded to, if to fewer bits, and in which line.

    Then whether anything adds in fp16, and the last conversion of fp32 to a type of 16 bits.
    """
    code = [each for kernel in kernels for each in kernel.entry.instructions]
    cuts = ((cut, each.line) for cut, name in _CUTS.items() for each in code if re.search(name, each.name))
    roundings = [
        Rounding("bf16" if found[1] else "fp16", each.line) for each in code if (found := _TO_16_BITS.search(each.name))
    ]
    last = roundings[-1] if roundings else None
    return *next(cuts, ("", 0)), any(_HALF_SUM.search(each.name) for each in code), last


def needs_finite_a(subject: Subject, problem: gemm_ref.Problem) -> bool:
    """Whether rows of C that are finite are wrong where the next row of A begins with infinity."""
    trial = attempt(subject, problem, "infinite")
    if trial.fault or trial.refusal:
        return False
    return not torch.equal(trial.c[::2].double(), trial.a[::2].double() @ trial.b.double())


def deep_problem(subject: Subject, problem: gemm_ref.Problem) -> gemm_ref.Problem:
    """Returns a K with which sums of positive integers are exact in fp32, and not in 16 bits."""
    return subject.nearest_problem(problem.resized(k=_DEEP))


def equal_sizes(is_right: Callable[[gemm_ref.Problem], bool], base: gemm_ref.Problem, cube: gemm_ref.Problem) -> str:
    """Returns which sizes must be equal, of a kernel that is right for `cube` and not for `base`: MN, ... MNK.

    What is whole in the cube need not be in `base`, such as the K of a loop of two slices a trip; twice a side is.
    Each is confirmed at other sizes; empty where none is.
    """
    m, n, side = base.m, base.n, cube.m
    twice = 2 * side if side <= _MAX_SIDE else side + max(_SLICES)
    tried = {
        "MN": (base.resized(n=m), cube.resized(k=2 * side)),
        "MK": (base.resized(k=m), cube.resized(n=2 * side)),
        "NK": (base.resized(k=n), cube.resized(m=2 * side)),
    }
    pairs = ((pair, problems[index]) for index in range(2) for pair, problems in tried.items())
    if pair := next((pair for pair, problem in pairs if is_right(problem)), ""):
        return pair if is_right(cube.resized(**dict.fromkeys(pair.lower(), twice))) else ""
    return "MNK" if is_right(cube.resized(twice, twice, twice)) else ""


def wrong_strides(subject: Subject) -> Iterator[Message]:
    """Yields the lines of the source that step from row to row of a matrix by another size than its rows have."""
    for line, matrix, name, size in subject.row_steps():
        right = ROW_LENGTH[matrix]
        is_same = subject.square or {size.lower(), right.lower()} <= set(subject.fixed)  # two names of one number
        if size != right and not is_same:
            yield message(Why.WRONG_STRIDE, line=line, matrix=matrix, name=name, size=size, right=right)
