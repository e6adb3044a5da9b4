"""How lists, dialects, rungs and verdicts are written in README, docs and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from experiments.records import stats
from gemm_ref import DIALECTS, Rung
from gemm_ref.rung import DEFAULT_VARIANT

NOT_MEASURED = "not measured"
DIALECT_TITLES = " / ".join(dialect.title for dialect in DIALECTS.values())  # above cells that hold one number each
VERDICT_WORDS = {stats.SAME: "level", stats.FASTER: "faster", stats.SLOWER: "slower", stats.UNSURE: "not told apart"}


def join_words(words: Iterable[str], comma: str = ", ", last: str = " and ") -> str:
    """`a, b and c`."""
    *most, end = [*words] or [""]
    return last.join([comma.join(most), end] if most else [end])


def join_dialects(texts: Mapping[str, str]) -> str:
    """`1.2 s in CUDA and 3.4 s in Triton`: a text for each dialect that has one, in the registry's order."""
    return join_words(f"{texts[name]} in {dialect.title}" for name, dialect in DIALECTS.items() if name in texts)


def dialect_title(name: str) -> str:
    """What a dialect is called in text."""
    return DIALECTS[name].title


def kernel_name(stage: str, variant: str) -> str:
    """A rung's id as code, and its variant where that has a name."""
    return f"`{stage}`" + ("" if variant == DEFAULT_VARIANT else f" {variant}")


def name_defaults(stage: Rung) -> str:
    """The variant that each dialect's numbers are of, where a rung has several: one_block (CUDA) / narrow (Triton)."""
    names = {dialect: stage.find_variant(DEFAULT_VARIANT, dialect) for dialect in stage.dialects}
    if len(set(names.values())) > 1:
        return " / ".join(f"{name} ({DIALECTS[dialect].title})" for dialect, name in names.items())
    variant = next(iter(names.values()))
    return "" if variant == DEFAULT_VARIANT else variant


def docs_page(stage: Rung) -> str:
    """The page of docs/ that has the rung's section, headed by its id: PAGE#ID links to it."""
    return "ladder.md" if "fp32" in stage.maths else "tensor_cores.md"
