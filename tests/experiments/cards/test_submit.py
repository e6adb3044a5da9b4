"""What is asked of a card's results before they are published; every published folder is held to it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from experiments.cards import requirements
from experiments.cards.requirements import open_shortfalls
from experiments.cards.submit import submit
from experiments.records import store
from experiments.records.request import UsageError
from experiments.records.rows import FAIL
from experiments.records.store import CARD
from tests.experiments.fixtures import ENVIRONMENT, H200, ladder_rows, renamed
from tests.imports import ROOT

CARDS = store.published()
GPU = H200 | {"driver": "1.2.3"}
RUN = ENVIRONMENT | {"device": "NVIDIA H200", "slug": "nvidia-h200", "gpu": GPU, "python": "3.12", "nvcc": "13.0.88"}
ON_GPU = [row for row in ladder_rows((4096,)) if row.backend not in ("cpu", "numpy", "torch")]
ROWS = renamed("example", ON_GPU, mode="cold")
OTHERS = {"experiment-needs_gpu": "not today"}

in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this copy has no git repository")


@pytest.fixture
def save(tmp_path, example_study):
    """`save(rows, **environment)`: a card's folder of `example` alone; its path."""

    def to(rows=ROWS, **environment):
        folder = tmp_path / "results" / "nvidia-h200"
        store.save(folder, "example", rows, RUN | environment)
        return folder

    return to


def missing(folder) -> dict[str, str]:
    """What is missing besides the other study."""
    return {shortfall.name: shortfall.finding for shortfall in open_shortfalls(folder, OTHERS)[0]}


def changed(**values):
    return [replace(ROWS[0], **values), *ROWS[1:]]


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_a_published_folder_has_what_is_asked_for(folder):
    left, needless = open_shortfalls(folder)
    assert not left and not needless


@in_git
def test_git_has_the_published_folders_and_lets_new_ones_in_without_their_pages():
    def git(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)

    tracked = git("ls-files", "experiments/results").stdout.splitlines()
    assert {line.split("/")[2] for line in tracked} == {folder.name for folder in CARDS}
    names = ("nvidia-l4/ladder.csv", "nvidia-l4/report.html", "cpu/ladder.csv")
    ignored = [git("check-ignore", "-q", f"experiments/results/{name}").returncode == 0 for name in names]
    assert ignored == [False, True, True]


def test_a_study_that_is_missing_is_named(save):
    left, needless = open_shortfalls(save())
    assert [shortfall.name for shortfall in left] == list(OTHERS) and not needless
    assert "python -m experiments run needs_gpu" in left[0].advice and missing(save()) == {}


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
    found = missing(save(**environment))
    assert set(found) == {name} and said in found[name]


def test_runs_of_two_commits_and_versions(save):
    half = len(ROWS) // 2
    save(ROWS[:half])
    found = missing(save(ROWS[half:], date="2021-01-01T00:00:00Z", commit="f" * 40, torch="9.9"))
    assert set(found) == {"commits", "version-torch"} and "0123456789, ffffffffff" in found["commits"]


def test_a_row_that_failed(save):
    found = missing(save(changed(status=FAIL, detail="wrong at 3, 4")))
    assert found.keys() == {"failures-example"} and "wrong at 3, 4" in found["failures-example"]


def test_a_time_that_no_card_reaches_is_never_excused(save):
    left, _ = open_shortfalls(save(changed(median_us=1.0)), OTHERS | {"roofs": "it is fast"})
    assert [shortfall.name for shortfall in left] == ["roofs"]


def test_a_card_that_was_not_quiet(save):
    control = replace(ROWS[0], stage="control", backend="control", dialect="", verdict="UNSURE")
    assert "controls" not in missing(save([*ROWS, replace(control, mode="host clock")]))
    assert "SAME at 0 of 1 problems" in missing(save([*ROWS, control]))["controls"]


def test_files_columns_and_folders_that_do_not_belong(save, tmp_path):
    folder = save()
    (folder / "notes.txt").write_text("mine")
    (folder / "example.csv").write_text("a,b\n1,2\n")
    assert {"files", "columns-example"} <= {shortfall.name for shortfall in requirements.find_shortfalls(folder)}
    with pytest.raises(UsageError, match="is no folder"):
        requirements.find_shortfalls(tmp_path / "none")
    (folder / "example.csv").unlink()
    with pytest.raises(UsageError, match="no results of a GPU"):
        requirements.find_shortfalls(save(gpu=None))


def test_excuses_are_written_down(save, tmp_path, invoke):
    folder, target = save(), tmp_path / "published"
    assert submit(folder, {}, target).folder is None and not target.exists()
    done = submit(folder, OTHERS, target)
    assert done.folder == target / "nvidia-h200"
    assert {path.name for path in done.folder.iterdir()} == {"example.csv", "example.png", store.ENVIRONMENT, CARD}
    assert store.published(target) == [done.folder] and open_shortfalls(done.folder) == ([], [])
    again = submit(done.folder, {"commits": "many"}, target)  # in place, and with an excuse that nothing needs
    assert again.folder is None and again.needless == ["commits"]
    refused = invoke("submit", save(dirty=True))
    assert refused.exit_code == 1 and "commit or undo them, then measure again" in refused.said
    assert invoke("submit", folder, "--excuse", "changes").exit_code == 2
