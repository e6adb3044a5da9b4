"""Sums of tensor cores: against an H200's outputs, and against the same rule in Python's integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.studies.shared.dot_vectors import LAYOUTS, WORDS, Vectors, random_vectors
from experiments.studies.shared.dots import DOTS, Dots, modelled, on_gpu
from gemm_ref.compute import MATHS
from gemm_ref.ptx.units import tensor_core
from tests.ptx.plain_sums import hopper
from tests.ptx.units.h200_tensor_cores import LOT, LOTS, checksum, inputs_checksum, lots, recorded

CHECKED = 4  # lots of random vectors of each instruction; where there is a GPU, it makes 100


@pytest.mark.parametrize("dots", DOTS, ids=str)
def test_outputs_are_those_of_an_h200(dots):
    own = recorded()[str(dots)]
    for i, vectors in enumerate(itertools.islice(lots(dots), 1 + CHECKED)):
        assert inputs_checksum(vectors) == own.inputs[i], "the vectors are not those that the H200 was given"
        made = modelled(dots, vectors)
        if i < 2:
            np.testing.assert_array_equal(made, (own.crafted, own.first)[i])
        assert checksum(made) == own.outputs[i], f"lot {i}"


@pytest.mark.parametrize("math, form", [
    ("tf32", ("wmma", "tf32", 8)), ("tf32", ("wgmma", "tf32", 8)), ("fp16", ("mma", "f16", 16)),
    ("bf16", ("mma", "bf16", 8)), ("fp8", ("wgmma", "e4m3", 32)),
])  # fmt: skip
def test_what_is_lost_is_allowed(math, form):
    """For each product, in shares of |A| @ |B|: each of a group's terms is cut once, and then the sum."""
    how = tensor_core.sum_of(*form)
    lost = ((how.group + 1) * 2.0**-how.fraction + 2.0**-how.result_bits) / how.group
    assert 1.8 * lost <= MATHS[math].sum_eps


@pytest.mark.gpu
@pytest.mark.parametrize("dots", DOTS, ids=str)
def test_this_gpu_adds_so_too(dots):
    if refusal := dots.kernel.refusal(torch.cuda.get_device_capability()):
        pytest.skip(refusal)
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the sums are those of Hopper's tensor cores")
    fresh = random_vectors(dots.kinds, dots.k, LOTS * LOT, seed=LOTS)
    np.testing.assert_array_equal(on_gpu(dots, fresh), modelled(dots, fresh))


# --- against Python's integers -------------------------------------------------------------------------------


@st.composite
def some_vectors(draw: st.DrawFn, dots: Dots) -> Vectors:
    """Any codes, with exponents near each other or far apart, in tiles of some rows and columns."""
    count = draw(st.integers(1, 3))

    def codes(kind: str, *shape: int) -> np.ndarray:
        layout, size = LAYOUTS[kind], int(np.prod(shape))
        low = draw(st.integers(0, layout.top))
        high = draw(st.integers(low, min(layout.top + 1, low + draw(st.sampled_from([1, 4, 40, 300])))))
        fields = [(0, 1), (low, high), (0, (1 << layout.fraction) - 1)]
        parts = [draw(st.lists(st.integers(*ends), min_size=size, max_size=size)) for ends in fields]
        return layout.code(*(np.array(part, np.int64) for part in parts)).astype(WORDS[kind]).reshape(shape)

    a, b, sums = dots.kinds
    return Vectors(codes(a, count, dots.k), codes(b, count, dots.k), codes(sums, count))


@pytest.mark.parametrize("dots", DOTS, ids=str)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_same_in_integers(dots, data):
    some = data.draw(some_vectors(dots))
    want = [
        hopper(dots.instruction, *(list(map(int, part)) for part in (a, b)), int(c), dots.kinds)
        for a, b, c in zip(some.a, some.b, some.c, strict=True)
    ]
    assert modelled(dots, some).tolist() == want


def test_a_subnormal_e4m3_is_a_normal_number_to_mma():
    """Which is made of fp16's: 2^5 + 2^-18 keeps its last bit, that wgmma and an exponent of 2^-6 would cut."""
    (dots,) = (each for each in DOTS if str(each) == "mma e5m2 x e4m3 k32")
    a, b = np.zeros((1, 32), np.uint8), np.zeros((1, 32), np.uint8)
    a[0, [8, 9]], b[0, [8, 9]] = (24, 116), 1  # 2^-9 and 2^14, each times 2^-9
    want = hopper("mma", a[0].tolist(), b[0].tolist(), 0, dots.kinds)
    assert want == 0x42000001 and modelled(dots, Vectors(a, b, np.zeros(1, np.uint32))).tolist() == [want]


@pytest.mark.parametrize("m, n, tiles", [(64, 256, 2), (64, 96, 3), (16, 8, 300), (70, 64, 1)])
def test_each_element_is_a_sum_of_its_own(m, n, tiles):
    """However many are worked on at a time."""
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((tiles, rows, 32)).astype(np.float16).astype(np.float32) for rows in (m, n))
    c = rng.standard_normal((tiles, m, n)).astype(np.float32)
    how = tensor_core.sum_of("wgmma", "f16", 16)
    whole = tensor_core.add_products(x, y, ("f16", "f16"), c, how)
    for tile, row, column in zip(*(rng.integers(0, size, 50) for size in (tiles, m, n)), strict=True):
        at, rows, columns = slice(tile, tile + 1), slice(row, row + 1), slice(column, column + 1)
        one = tensor_core.add_products(x[at, rows], y[at, columns], ("f16", "f16"), c[at, rows, columns], how)
        assert one[0, 0, 0] == whole[tile, row, column]
