"""The rule and the words of the answer follow the data; test_independent.py has the published numbers."""

import dataclasses
from types import SimpleNamespace

import pytest

from experiments.publish import blocks, reach
from experiments.publish.answer import LANGUAGES, Answer
from experiments.publish.reach import Reach
from experiments.records import shape_classes, store, studies
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE, Ratio
from tests.experiments.fixtures import ENVIRONMENT, changed, ladder_rows


def save(folder, shares, study="ladder", sizes=((4096, 4096, 4096),), environment=(), **columns):
    """fp32 rows in which each dialect has that share of cuBLAS (median, low, high) in every rung, and no other row."""
    kind = studies.row_type(study)
    columns |= {"experiment": study, **({"b_layout": "kn"} if "b_layout" in kind.columns() else {})}
    rows = [
        kind(
            **dataclasses.asdict(row)
            | {"median_us": 1000 / share[0], "m": m, "n": n, "k": k, **columns}
            | Ratio(*share).columns("vs_cublas"),
        )
        for m, n, k in sizes
        for row in ladder_rows((4096,))
        if (share := shares.get(row.dialect))
    ]
    store.save(folder, study, rows, ENVIRONMENT | dict(environment))


def scaled(*ratio):
    return tuple(0.5 * value for value in ratio)


HAND = scaled(1.0, 0.9998, 1.0002)


@pytest.fixture
def lines(monkeypatch):
    """Sets the lines of code of each dialect."""
    of = {"cuda": 20, "triton": 9, "gluon": 9}
    monkeypatch.setattr(Reach, "lines", property(lambda own: of[own.dialect]))
    return of


@pytest.mark.parametrize(
    ("ratio", "verdict", "beside", "keeps_up"),
    [
        ((0.9, 0.899, 0.901), SLOWER, ", 10% slower", False),
        ((1.0, 0.999, 1.001), SAME, ", level", True),
        ((1.1, 1.099, 1.101), FASTER, ", 10% faster", True),
        ((1.0, 0.8, 1.2), UNSURE, ", not told apart", False),
    ],
)
@pytest.mark.parametrize("fewest", ["cuda", "triton"])
def test_the_fewest_lines_among_those_that_keep_up(tmp_path, lines, ratio, verdict, beside, keeps_up, fewest):
    lines[fewest] = 5
    save(tmp_path, {"cuda": HAND, "triton": scaled(*ratio)})
    (mode,) = Answer(tmp_path).modes
    assert mode.describe_verdict("triton") == beside
    if verdict == FASTER:
        assert mode.take == "triton", "CUDA does not keep up"
    else:
        assert mode.take == (fewest if keeps_up else "cuda")


def test_a_rung_with_fewer_lines_is_shown_where_it_keeps_up(tmp_path, monkeypatch):
    """The fastest by a hair is not what a reader should copy."""
    save(tmp_path, {"cuda": HAND, "triton": HAND})
    lines = {"s14_register_banks": 900, "s12_async_copy": 50}
    monkeypatch.setattr(reach, "lines_of", lambda stage, _: SimpleNamespace(lines=lines.get(stage, 99)))
    assert Answer(tmp_path).modes[0].best["cuda"].rung == "s12_async_copy"


@pytest.mark.parametrize(
    ("math", "sizes", "name"),
    [
        ("fp32", (512, 512, 512), shape_classes.SQUARES),
        ("fp32", (65, 4096, 4096), shape_classes.LAYERS),
        ("fp32", (64, 4096, 4096), shape_classes.FEW_ROWS),
        ("fp32", (4096, 4096, 1022), shape_classes.UNALIGNED),
        ("bf16", (4096, 1500, 4096), shape_classes.UNALIGNED),
        ("fp32", (4096, 1500, 4096), shape_classes.LAYERS),
        ("fp8", (4096, 4096, 1000), shape_classes.UNALIGNED),
        ("bf16", (4096, 4096, 1000), shape_classes.LAYERS),
        ("tf32", (1021, 1021, 1021), shape_classes.UNALIGNED),
    ],
)
def test_classes_of_problems(math, sizes, name):
    assert shape_classes.classify(math, *sizes) == name


def test_the_library_is_to_take_where_every_dialect_is_slower(tmp_path, lines):
    decode = [(m, 4096, 4096) for m in (1, 8, 16)]
    save(tmp_path, {"cuda": HAND, "triton": scaled(0.9, 0.89, 0.91)}, "shapes", decode, verdict=SLOWER)
    answer = Answer(tmp_path)
    assert answer.take_in(shape_classes.FEW_ROWS) == {"cuBLAS": ["fp32"]}
    save(tmp_path, {"cuda": HAND, "triton": scaled(0.9, 0.89, 0.91)}, "shapes", decode, verdict=FASTER)
    assert Answer(tmp_path).take_in(shape_classes.FEW_ROWS) == {"cuda": ["fp32"]}


def test_rows_of_an_older_commit_are_marked_and_never_mixed(tmp_path, lines):
    older = {"commit": "f" * 40, "date": "2020-01-01T00:00:00Z"}
    save(tmp_path, {"cuda": scaled(2.0, 1.99, 2.01)}, "shapes", [(128, 4096, 4096)], environment=older)
    save(tmp_path, {"cuda": HAND})
    answer = Answer(tmp_path)
    assert answer.other_commits == {"f" * 10: ["fp32"]} and answer.classes[shape_classes.LAYERS]["fp32"].mark
    save(tmp_path, {"cuda": HAND}, "shapes", [(256, 4096, 4096)])
    (layers,) = Answer(tmp_path).classes[shape_classes.LAYERS].values()
    assert [*layers.best["cuda"].fastest] == [(256, 4096, 4096)] and not layers.mark


def test_tf32_that_cublas_computes_in_fp32_is_in_no_mean():
    frame = store.read(store.PUBLISHED, "shapes")
    other = frame[shape_classes.has_other_arithmetic(frame)]
    assert set(other["math"]) == {"tf32"} and (other["m"].min() == 1 or other["n"].min() == 1)
    judged = shape_classes.with_classes(frame[(frame["math"] == "tf32") & frame["median_us"].notna()])
    assert not shape_classes.has_other_arithmetic(judged).any()


def test_wrong_baselines_are_counted(tmp_path):
    """cuBLAS at problems of which the rungs have shares of another library: it has no time, and they are in means."""

    def spoil(frame):
        wrong = frame.index[(frame["stage"] == "cublas") & (frame["math"] == frame["math"].iloc[-1])]
        frame.loc[wrong, "status"] = "fail"
        frame.loc[wrong, [name for name in frame if name in ("median_us", "tflops") or "vs_cublas" in name]] = ""

    def spoil_one(frame):
        row = frame.index[frame["stage"] == "cublas"][:1]
        frame.loc[row, ["status", "median_us", "tflops", "vs_cublas"]] = ["fail", "", "", ""]

    answer, published = Answer(changed(tmp_path, shapes=spoil_one)), Answer()
    assert published.wrong_baselines == 0 and answer.wrong_baselines == 1
    assert answer.tabulate().to_markdown() == published.tabulate().to_markdown()
    assert "(no rows so far)" in published.sentences()[-1] and "(1 row so far)" in answer.sentences()[-1]
    changed(tmp_path, ladder=spoil, tensor_cores=spoil)
    assert "cuBLAS takes – µs" in blocks.block("deep", tmp_path)
    assert "| – |" in blocks.block("tensor_cores", tmp_path).splitlines()[-3]


def test_without_cuda_nothing_is_recommended(tmp_path):
    save(tmp_path, {"triton": HAND})
    answer = Answer(tmp_path)
    assert not answer.take and "**" not in "".join(answer.paragraphs())


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_said_of_an_empty_folder(tmp_path, language):
    assert Answer(tmp_path).paragraphs(language) == []
