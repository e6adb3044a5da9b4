"""Rungs that are rewritten with their registers in mind: still right, and a rule that does not apply says so."""

from __future__ import annotations

import pytest

import cuda_kernels
import gemm_ref
from cuda_kernels import source
from cuda_kernels.rewritten import RULES, rewrite
from experiments.studies.registers.rewritten_rungs import FORMS, RUNGS

ITEMS = [item for item in gemm_ref.implementations() if item.dialect == "cuda" and item.stage.number in RUNGS]
SHAPES = ((33, 129, 57), (0, 4, 3), (5, 7, 0))  # partial tiles, and nothing to store or to sum


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_a_rung_is_right_by_all_rules(item):
    fn = cuda_kernels.gemm_rewritten(item, tuple(RULES))
    for m, n, k in SHAPES:
        a, b = gemm_ref.make_inputs(gemm_ref.Problem(m, n, k), "integers")
        gemm_ref.checked_run(fn, a, b, exact=True, config=item.config)


def test_each_rule_alone_changes_what_is_compiled():
    for rules in FORMS.values():
        assert (source.ptx(ITEMS[-1], rules=rules) == source.ptx(ITEMS[-1])) == (not rules)


def test_a_block_that_asks_for_more_memory_computes_the_same():
    a, b = gemm_ref.make_inputs(gemm_ref.Problem(*SHAPES[0]), "integers")
    gemm_ref.checked_run(cuda_kernels.gemm_rewritten(ITEMS[0], (), 1 << 16), a, b, exact=True, config=ITEMS[0].config)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_finds_nothing_is_an_error(rule):
    with pytest.raises(ValueError, match=f"{rule}.*nothing to change"):
        rewrite("int main() {}", (rule,))
