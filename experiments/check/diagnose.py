"""Why a result is wrong: guesses, each of which is tried, and said only where it explains every element of C."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

import gemm_ref
from experiments.check.subject import PLAIN, Subject
from experiments.check.trial import Trial, attempt
from gemm_ref import ptx
from gemm_ref.epilogue import Extras
from gemm_ref.ptx.detect.finding import MISSED, UNWRITTEN

ROW_LENGTH = {"A": "K", "B": "N", "C": "N"}  # row-major
_SLICES = (128, 64, 32, 16, 8, 4, 2)
# Instructions that leave fp32 as many bits, and those that add in fp16.
_CUTS = {"tf32": re.compile(r"\.tf32"), "fp16": re.compile(r"^cvt\.r\w\.f16(?:x2)?\.f32")}
_HALF_SUM = re.compile(r"mma.*(?<!\.f32)\.f16\.f16$|^(?:fma|add)\S*\.f16")
_DEEP = 1024  # products, whose positive sums are some 5000
_NEAR = 1e-3  # so near to a whole number a factor is one


def explain(subject: Subject, trial: Trial) -> Iterator[str]:
    """Sentences about a trial whose result is wrong, the most telling first; none where no guess holds.

    trial: with `integers` as inputs, so that each guess is right to the bit or not at all.
    """
    of_c = (_untouched, _part_of_k, _other_product, _multiple, _begun, _moved, _pattern)
    for guess in (_exchanged_grid, *(() if trial.fault else of_c)):  # after a fault C is as it was then
        sentence = guess(subject, trial)
        if sentence:
            yield sentence
            return


def _exchanged_grid(subject: Subject, trial: Trial) -> str:
    swapped = subject.swapped()
    if swapped is None or trial.problem.m == trial.problem.n:
        return ""
    other, grid = swapped
    if not attempt(other, trial.problem).right:
        return ""
    return (
        "it is right with x and y of the grid exchanged: the kernel counts rows of C along the axis whose size the "
        f"grid takes from the columns. Pass --grid '{grid}'"
    )


def _untouched(subject: Subject, trial: Trial) -> str:
    missed = sum(finding.count for finding in trial.findings if finding.kind == MISSED)
    return "no element of C is ever written" if missed == trial.c.numel() else ""


def _part_of_k(subject: Subject, trial: Trial) -> str:
    """Whether C is a product over fewer k: A[:, :k] @ B[:k, :]."""
    a, b, depth = trial.a.double(), trial.b.double(), trial.problem.k
    got = trial.c.double()
    for step in _SLICES:
        part = depth // step * step
        if part < depth and step <= depth + 1 and torch.equal(got, a[:, :part] @ b[:part]):
            return (
                f"the last K % {step} products of each sum are left out (here {depth - part} of {depth}): K / {step} "
                "rounds down. Walk cdiv(K, BLOCK_K) slices, and take zeros past the end"
            )
    for part in range(depth):
        if torch.equal(got[0], a[0, :part] @ b[:part]) and torch.equal(got, a[:, :part] @ b[:part]):
            return f"only the first {part} of {depth} products of each sum are added"
    return ""


def _other_product(subject: Subject, trial: Trial) -> str:
    """Whether C is the product of other matrices, or is stored in another order."""
    m, n, k = trial.problem.m, trial.problem.n, trial.problem.k
    a, b, got = trial.a.double(), trial.b.double(), trial.c.double()
    want, turned_a, turned_b = a @ b, a.reshape(k, m).T, b.reshape(n, k).T
    products = {
        "C is stored transposed, as (N, M)": want.T.reshape(m, n),
        "A is read as if it were stored transposed, as (K, M)": turned_a @ b,
        "B is read as if it were stored transposed, as (N, K)": a @ turned_b,
        "A and B are read as if both were stored transposed, as (K, M) and (N, K)": turned_a @ turned_b,
    }
    if m == n == k:
        products["A and B are exchanged: C is B @ A"] = b @ a
    for name, size in (("M", m), ("N", n)):
        if size != k and (m - 1) * size + k <= m * k:
            said = f"A is read with {name} elements from row to row: a row of A has K"
            products[said] = a.reshape(-1).as_strided((m, k), (size, 1)) @ b
    for name, size in (("M", m), ("K", k)):
        if size != n and (k - 1) * size + n <= k * n:
            said = f"B is read with {name} elements from row to row: a row of B has N"
            products[said] = a @ b.reshape(-1).as_strided((k, n), (size, 1))
    return next((said for said, product in products.items() if torch.equal(got, product)), "")


def _begun(subject: Subject, trial: Trial) -> str:
    """Whether every sum is off by one constant, whatever is added up."""
    off = trial.c.double() - trial.a.double() @ trial.b.double()
    first = off.flatten()[0]
    if off.numel() < 2 or not bool((off == first).all()):
        return ""
    other = attempt(subject, trial.problem, "ones")
    if other.fault or not bool((other.c.double() == trial.problem.k + first).all()):
        return ""
    return f"the sum does not start at zero: it is off by {first:g} everywhere"


def _moved(subject: Subject, trial: Trial) -> str:
    """Whether all the right numbers are there in other places, or the right count of products of other elements."""
    want, got = trial.a.double() @ trial.b.double(), trial.c.double()
    rows, columns = subject.tile
    if torch.equal(want.flatten().sort()[0], got.flatten().sort()[0]):
        if rows == columns and not trial.problem.m % rows and not trial.problem.n % columns:
            turned = want.reshape(trial.problem.m // rows, rows, trial.problem.n // columns, columns).permute(
                0, 3, 2, 1
            )
            if torch.equal(turned.reshape(want.shape), got):
                return (
                    f"each tile of {rows} x {columns} of C is stored transposed: x and y are exchanged between the "
                    "product and the store"
                )
        return (
            "every number of the product is in C, but in another place: the store computes other indices than the sum"
        )
    if attempt(subject, trial.problem, "ones").right:
        a_is_right, b_is_right = (attempt(subject, trial.problem, kind).right for kind in ("b_ones", "a_ones"))
        whose = "A" if b_is_right and not a_is_right else "B" if a_is_right and not b_is_right else "A and of B"
        return (
            f"each sum has K products, but of other elements of {whose} than it should (with ones there it is right): "
            "look at the indices of its loads, and of its stores to shared memory and reads from there"
        )
    return ""


def _pattern(subject: Subject, trial: Trial) -> str:
    """Where the wrong elements are, if that has a simple form."""
    wrong = trial.c.double() != trial.a.double() @ trial.b.double()
    m, n, (rows, columns) = trial.problem.m, trial.problem.n, subject.tile
    if bool(wrong.all()):
        return "every element of C is wrong"
    for text, mask in _masks(m, n, rows, columns):
        if torch.equal(wrong, mask):
            return f"exactly {text} are wrong"
    if bool((wrong.any(1) == wrong.all(1)).all()):
        return f"whole rows of C are wrong: {_list(wrong.all(1))}"
    if bool((wrong.any(0) == wrong.all(0)).all()):
        return f"whole columns of C are wrong: {_list(wrong.all(0))}"
    return ""


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
    return _is_told(trial) or bool(trial.wrong) and not missed and bool(trial.c.isnan().all())


def _is_told(trial: Trial) -> bool:
    return any(finding.kind == UNWRITTEN and "reads C[" in finding.text for finding in trial.findings)


def adds_to_c(subject: Subject, trial: Trial) -> str:
    """What to say of a kernel that adds to C as it was before; empty if it does not."""
    if not reads_c(trial):
        return ""
    cure = "Sum in a register, and store each element of C once"
    if attempt(subject, trial.problem, zeroed=True).right:
        return (
            "C is right only if it holds zeros beforehand: the kernel adds to what is there, and newly allocated "
            f"memory is undefined. {cure}"
        )
    return f"the kernel adds to what C holds beforehand, which may be anything. {cure}" * _is_told(trial)


def finish(subject: Subject, trial: Trial) -> Extras:
    """What a kernel does to every element of C unasked, if nothing else is wrong: it multiplies, or cuts at 0."""
    if not trial.wrong:
        return Extras()
    if trial.scales != PLAIN:
        trial = attempt(subject, trial.problem, scales=PLAIN, zeroed=True)
    if not trial.wrong:
        return Extras()
    got, want = trial.c.double(), trial.a.double() @ trial.b.double()
    if torch.equal(got, want.relu()):
        return Extras(activation="relu")
    factor = _factor(trial)
    # Its own number of times, or with the other sign, is a sum that went wrong sooner than a factor that is meant.
    return Extras(alpha=factor) if factor > 0 and abs(factor - round(factor)) > _NEAR else Extras()


def _factor(trial: Trial) -> float:
    """What every element of the product is multiplied by in C, to the precision of C; 0 where it is not one number."""
    got, want = trial.c.double(), trial.a.double() @ trial.b.double()
    factor = float((got * want).sum() / (want * want).sum())
    precision = torch.finfo(trial.c.dtype).eps if trial.c.is_floating_point() else 0.0
    close = (got - factor * want).abs() <= 2 * precision * abs(factor) * want.abs()
    return factor if bool(close.all()) else 0.0


def _multiple(subject: Subject, trial: Trial) -> str:
    factor = _factor(trial)
    counted = round(factor) > 1 and abs(factor - round(factor)) <= _NEAR
    return f"C is {factor:.4g} times the product: is a sum counted {factor:.4g} times?" * counted


def ignored_scales(subject: Subject, trial: Trial) -> Iterator[str]:
    """What to say of a kernel that is right for alpha = 1, beta = 0 and no bias, and wrong for those of the trial."""
    if not attempt(subject, trial.problem, scales=PLAIN, zeroed=True).right:
        return
    wrong = [
        name
        for name, value in vars(trial.scales).items()
        if value != getattr(PLAIN, name)
        and not attempt(subject, trial.problem, scales=replace(PLAIN, **{name: value}), zeroed=True).right
    ]
    plain = {"ALPHA": "alpha = 1", "BETA": "beta = 0", "BIAS": "a bias of zeros"}
    whole = "alpha * A @ B + beta * C" + " + bias" * ("BIAS" in subject.scalars)
    yield (
        f"it is right for {' and '.join(plain[name] for name in subject.scalars)}, and not for another "
        f"{' or '.join(wrong) or 'pair'}: C must become {whole}"
    )


def precision(kernels: Iterable[ptx.DecodedKernel]) -> tuple[str, int, bool]:
    """What fp32 operands are cut to, if to fewer bits, and in which line; whether anything is added in fp16."""
    code = [each for kernel in kernels for each in kernel.entry.instructions]
    cuts = ((cut, each.line) for cut, name in _CUTS.items() for each in code if re.search(name, each.name))
    return *next(cuts, ("", 0)), any(_HALF_SUM.search(each.name) for each in code)


def rounds_sums(subject: Subject, problem: gemm_ref.Problem) -> bool:
    """Whether sums that fp32 holds exactly, and fp16 does not, are rounded on their way."""
    return attempt(subject, subject.admit(problem.resized(k=_DEEP)), "positive").wrong != ""


def equal_sizes(right: Callable[[gemm_ref.Problem], bool], base: gemm_ref.Problem, cube: gemm_ref.Problem) -> str:
    """Which sizes must be equal, of a kernel that is right for `cube` and not for `base`: MN, ... MNK.

    What is whole in the cube need not be in `base`, such as the K of a loop of two slices a trip; twice a side is.
    """
    m, n, side = base.m, base.n, cube.m
    tried = {
        "MN": (base.resized(n=m), cube.resized(k=2 * side)),
        "MK": (base.resized(k=m), cube.resized(n=2 * side)),
        "NK": (base.resized(k=n), cube.resized(m=2 * side)),
    }
    pairs = ((pair, problems[index]) for index in range(2) for pair, problems in tried.items())
    return next((pair for pair, problem in pairs if right(problem)), "MNK")


def confused(equal: str) -> str:
    """What to say of a kernel that needs these sizes equal."""
    if equal == "MNK":
        return (
            "it is right for square matrices only: M, N and K are mixed up somewhere, as a row's length. A row of "
            "A has K elements, of B and of C N"
        )
    return (
        f"it is right where {equal[0]} = {equal[1]} and wrong where they differ: {equal[0]} is used where {equal[1]} "
        "belongs, as a row's length or along the grid. A row of A has K elements, of B and of C N"
    )


def row_lengths(subject: Subject) -> Iterator[str]:
    """Lines of the source that step from row to row of a matrix by another size than its rows have."""
    for line, matrix, name, size in subject.row_steps():
        right = ROW_LENGTH[matrix]
        one = subject.square or {size.lower(), right.lower()} <= set(subject.fixed)  # another name for the same number
        if size != right and not one:
            yield (
                f"line {line} goes from row to row of {matrix} by {name}: a row of {matrix} has {right} elements, "
                f"not {size}"
            )
