"""What is asked of a card's results before they are published; every published folder is held to it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from experiments.cards import requirements
from experiments.cards.requirements import open_shortfalls
from experiments.cards.submit import submit
from experiments.records import frames, store, studies
from experiments.records.request import UsageError
from experiments.records.rows import FAIL, TimedRow
from experiments.records.store import CARD
from tests.experiments.fixtures import ENVIRONMENT, H200, checked_row, ladder_rows
from tests.imports import ROOT

CARDS = store.published()
GPU = H200 | {"driver": "1.2.3"}
RUN = ENVIRONMENT | {"device": "NVIDIA H200", "slug": "nvidia-h200", "gpu": GPU, "python": "3.12", "nvcc": "13.0.88"}
ROWS = [replace(row, mode="cold") for row in ladder_rows((4096,)) if row.backend not in ("cpu", "numpy", "torch")]
OTHERS = {f"experiment-{name}": "not today" for name in studies.names() if name != "ladder"}

in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this copy has no git repository")


@pytest.fixture
def save(tmp_path):
    """`save(rows, **environment)`: a card's folder of the ladder alone; its path."""

    def to(rows=ROWS, **environment):
        folder = tmp_path / "results" / "nvidia-h200"
        store.save(folder, "ladder", rows, RUN | environment)
        return folder

    return to


def lacking(folder) -> dict[str, str]:
    """What is lacking besides the other experiments."""
    return {shortfall.name: shortfall.finding for shortfall in open_shortfalls(folder, OTHERS)[0]}


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_a_published_folder_has_what_is_asked_for(folder):
    left, needless = open_shortfalls(folder)
    assert not left and not needless


@in_git
def test_published_folders_are_those_that_git_has():
    list_files = ["git", "ls-files", "experiments/results"]
    tracked = subprocess.run(list_files, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {line.split("/")[2] for line in tracked.splitlines()}
    assert there == {folder.name for folder in CARDS}, "`python -m experiments submit` makes a folder a published one"


@in_git
def test_a_new_card_is_let_in_and_its_pages_are_not():
    def is_ignored(name: str) -> bool:
        path = f"experiments/results/{name}"
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT)
        return done.returncode == 0

    assert [is_ignored(f"nvidia-l4/{name}") for name in ("ladder.csv", "report.html")] == [False, True]
    assert is_ignored("cpu/ladder.csv")


def test_a_whole_folder_lacks_nothing(save):
    assert lacking(save()) == {}


def test_experiments_that_are_missing_are_named(save):
    left, needless = open_shortfalls(save())
    assert {shortfall.name for shortfall in left} == set(OTHERS) and not needless
    assert all("python -m experiments run" in shortfall.advice for shortfall in left)


@pytest.mark.parametrize(
    ("environment", "name", "said"),
    [
        ({"dirty": True, "changes": "a.py, b.py"}, "changes", "1 of 1 runs had local changes: a.py, b.py"),
        ({"dirty": None, "changes": "unknown: no git"}, "unknown-changes", "unknown: no git"),
        ({"commit": None}, "commits", "None"),
        ({"slug": "nvidia-l4"}, "device", "nvidia-h200 has results of NVIDIA H200"),
        ({"device": "NVIDIA X1"}, "datasheet", "NVIDIA X1"),
        ({"nvcc": None}, "version-nvcc", "does not say which nvcc"),
    ],
)
def test_where_it_was_measured(save, environment, name, said):
    found = lacking(save(**environment))
    assert set(found) == {name} and said in found[name]


def test_runs_of_two_commits_and_versions(save):
    half = len(ROWS) // 2
    save(ROWS[:half])
    found = lacking(save(ROWS[half:], date="2021-01-01T00:00:00Z", commit="f" * 40, torch="9.9"))
    assert set(found) == {"commits", "version-torch"} and "0123456789, ffffffffff" in found["commits"]


def changed(index=0, **values):
    return [replace(row, **values) if place == index else row for place, row in enumerate(ROWS)]


def test_a_row_that_failed(save):
    found = lacking(save(changed(status=FAIL, detail="wrong at 3, 4")))
    assert "1 rows of ladder failed" in found["failures-ladder"] and "wrong at 3, 4" in found["failures-ladder"]


def test_a_time_that_no_card_reaches_is_never_excused(save):
    folder = save(changed(median_us=1.0))
    assert "the timer did not see all of the work" in lacking(folder)["roofs"]
    left, _ = open_shortfalls(folder, OTHERS | {"roofs": "it is fast"})
    assert [shortfall.name for shortfall in left] == ["roofs"]


def test_a_card_that_was_not_quiet(save):
    control = [replace(ROWS[0], stage="control", backend="control", dialect="", verdict="UNSURE", vs_cublas=1.1)]
    of_another_clock = [replace(row, mode="host clock") for row in control]
    assert "controls" not in lacking(save([*ROWS, *of_another_clock]))
    assert "SAME at 0 of 1 problems" in lacking(save([*ROWS, *control]))["controls"]


def test_files_and_columns(save):
    folder = save()
    (folder / "notes.txt").write_text("mine")
    (folder / "ladder.csv").write_text("a,b\n1,2\n")
    found = {shortfall.name for shortfall in requirements.find_shortfalls(folder)}
    assert {"files", "columns-ladder"} <= found


def test_what_is_no_folder_of_a_gpu(save, tmp_path):
    with pytest.raises(UsageError, match="no results of a GPU: `make PRESET=full experiments`"):
        requirements.find_shortfalls(save(gpu=None))
    with pytest.raises(UsageError, match="is no folder"):
        requirements.find_shortfalls(tmp_path / "none")


def test_excuses_are_written_down(save, tmp_path):
    folder, target = save(), tmp_path / "published"
    assert submit(folder, {}, target).folder is None and not target.exists()
    done = submit(folder, OTHERS, target)
    assert done.folder == target / "nvidia-h200"
    assert {path.name for path in done.folder.iterdir() if path.suffix != ".png"} == {
        "ladder.csv",
        store.ENVIRONMENT,
        CARD,
    }
    assert (done.folder / "ladder_vs_cublas.png").exists()
    assert store.published(target) == [done.folder] and open_shortfalls(done.folder) == ([], [])
    again = submit(done.folder, {"commits": "many"}, target)  # in place, and with an excuse that nothing needs
    assert again.folder is None and again.needless == ["commits"]


def test_of_many_checks_that_passed_the_worst_is_published(save, tmp_path):
    """One for each kernel, K and kind of inputs, which says for how many it stands; the card's own folder keeps all."""
    checks = [
        (3, 7, "normal", 0.1),
        (5, 7, "normal", 0.4),
        (9, 7, "normal", 0.2),
        (3, 7, "one_hot", 0.0),
        (3, 8, "normal", 0.3),
    ]
    rows = [checked_row(m=m, k=k, inputs=kind, bound_share=share) for m, k, kind, share in checks]
    folder = save()
    store.save(folder, "correctness", rows, RUN)
    excused = {name: why for name, why in OTHERS.items() if name != "experiment-correctness"}
    published = store.read(submit(folder, excused, tmp_path / "published").folder, "correctness")
    found = [(row.m, row.k, row.inputs, row.bound_share, row.checks) for row in published.itertuples()]
    assert found == [(5, 7, "normal", 0.4, 3), (3, 7, "one_hot", 0.0, 1), (3, 8, "normal", 0.3, 1)]
    own = store.read(folder, "correctness")
    assert len(own) == len(rows) and frames.tally(published) == frames.tally(own) == (5, 5)
    failed = frames.summarize_checks(own.assign(status=[FAIL, "pass", "pass", "pass", "pass"]))
    assert len(failed) == 4 and frames.tally(failed) == (4, 5)  # what failed is never left out


def test_the_command_says_what_to_do(invoke, save):
    folder = save(dirty=True)
    done = invoke("submit", folder)
    assert done.exit_code == 1 and "commit or undo them, then measure again" in done.said
    assert invoke("submit", folder, "--excuse", "changes").exit_code == 2


def test_rows_of_the_published_data_have_times():
    assert any(
        issubclass(kind, TimedRow) and len(store.read(store.PUBLISHED, name))
        for name, kind in studies.row_types().items()
    )
