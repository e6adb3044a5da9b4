"""Sentences about the result of `accuracy`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.wording import join_words
from experiments.records import frames
from gemm_ref.baselines import BASELINES

_SPLIT_K = "s13_split_k"
_LIBRARIES = ("cublas", "numpy_blas")  # beside which an error's growth is shown


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frame[frame["rel_error"].notna()]
    low, high = frame["k"].min(), frame["k"].max()
    if low == high:
        return
    keys = ["math", "stage", "variant", "dialect"]
    errors = frame.pivot_table(index=keys, columns="k", values="rel_error")
    growth = (errors[high] / errors[low]).dropna().rename("growth").reset_index()
    fp32, library = growth[growth["math"] == "fp32"], growth[growth["stage"] == "cublas"].set_index("math")["growth"]
    rungs = frames.rungs(fp32)
    groups = {
        f"`{_SPLIT_K[:3]}`": rungs[rungs["stage"] == _SPLIT_K],
        "the other rungs": rungs[rungs["stage"] != _SPLIT_K],
        **{BASELINES[name].title: fp32[fp32["stage"] == name] for name in _LIBRARIES},
    }
    known = {name: format_range(rows["growth"], format_fixed) for name, rows in groups.items() if len(rows)}
    each = join_words(f"{times} times in {name}" for name, times in known.items())
    root = format_fixed(np.sqrt(high / low))
    yield f"From K = {low} to {high}, over which sqrt(K) grows {root} times, the error in fp32 grows {each}"
    growths = [f"{format_fixed(library[m], 2)} times in {m}" for m in gemm_ref.MATHS if m in library and m != "fp32"]
    if growths:
        yield f"On tensor cores that of cuBLAS grows {join_words(growths)}"
