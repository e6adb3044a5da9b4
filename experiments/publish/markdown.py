"""Tables and lists of the documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemm_ref import DIALECTS, Rung
from gemm_ref.rung import DEFAULT_VARIANT

NOT_MEASURED = "not measured"


def named(stage: str, variant: str) -> str:
    """A rung's id, and its variant where it has a name."""
    return f"`{stage}`" + ("" if variant == DEFAULT_VARIANT else f" {variant}")


def defaults(stage: Rung) -> str:
    """The variant that each dialect's numbers are of, where a rung has several: one_block (CUDA) / narrow (Triton)."""
    names = {dialect: stage.find_variant(DEFAULT_VARIANT, dialect) for dialect in stage.dialects}
    if len(set(names.values())) > 1:
        return " / ".join(f"{name} ({DIALECTS[dialect].title})" for dialect, name in names.items())
    variant = next(iter(names.values()))
    return "" if variant == DEFAULT_VARIANT else variant


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Markdown of a table whose first columns hold `words`, and the others numbers, which are set to the right."""
    lines = [head, ["---" if place < words else "---:" for place in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listed(words: Iterable[str], comma: str = ", ", last: str = " and ") -> str:
    """`a, b and c`."""
    *most, end = [*words] or [""]
    return last.join([comma.join(most), end] if most else [end])


def page(stage: Rung) -> str:
    """The page of docs/ that has the rung's section, headed by its id: PAGE#ID links to it."""
    return "ladder.md" if "fp32" in stage.maths else "tensor_cores.md"
