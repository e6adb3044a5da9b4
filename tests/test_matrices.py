"""The covering arrays by which kernels are tried with a few of many forms."""

from __future__ import annotations

import itertools

from tests.matrices import Pairs, cover

FACTORS = {"tile": range(12), "compute": "abcd", "layout": ("kn", "nk"), "stores": ("unit", "threads")}


def test_each_pair_of_values_is_covered_by_few_combinations_that_exist():
    """Of 144 combinations, of which those in "d" by rows do not exist: the two longest factors have 48 pairs."""
    existing = [x for x in itertools.product(*FACTORS.values()) if x[1:3] != ("d", "kn")]
    selected = cover(existing, lambda x: [Pairs(x)])
    assert set(selected) <= set(existing) and len(selected) <= 50
    for i, j in itertools.combinations(range(len(FACTORS)), 2):
        assert {(x[i], x[j]) for x in selected} == {(x[i], x[j]) for x in existing}
    assert selected == cover(existing, lambda x: [Pairs(x)])


def test_each_value_is_covered_once():
    assert cover(list(itertools.product("abcde", (1, 2)))) == [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 1)]
