"""What pictures share: texts for what is absent, and keys."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.numbers import format_number
from gemm_ref import STAGES


def test_no_kernel_is_not_the_same_as_not_run():
    split = next(stage for stage in STAGES.values() if "gluon" not in stage.dialects)
    assert style.absent(split.id, "gluon") == style.NO_KERNEL != style.absent(split.id, "cuda")
    assert style.absent("s05_bank_conflict", "natural", "cuda") == style.NO_KERNEL
    assert style.absent("s05_bank_conflict", "natural", "triton") == style.absent("cpu_loop", "") == style.NOT_RUN
    assert style.NO_KERNEL in style.with_absent("a caption", ["1", style.NO_KERNEL])
    assert style.with_absent("a caption", ["1", style.NOT_RUN]) == "a caption"


def test_a_key_names_what_is_drawn_alone():
    figure = Figure(figsize=(4, 4))
    style.legend(figure, ["gluon", "cuda", "", "cuda"])
    style.legend(figure, [""])
    assert [[text.get_text() for text in key.get_texts()] for key in figure.legends] == [["CUDA", "Gluon"]]


def test_three_digits_where_they_round_up():
    assert [format_number(x) for x in (0.978, 9.876, 99.94, 99.96, 100.4, 1234.5)] == [
        "0.978", "9.88", "99.9", "100", "100", "1234",
    ]  # fmt: skip
