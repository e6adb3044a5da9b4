"""What is recorded of the machine and of the code that measured: its commit, and whether it was that commit's code."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from experiments.bench import provenance
from experiments.records import environment
from experiments.records.request import UsageError
from tests.experiments.fixtures import raising

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder, *command):
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit, taken for ours; nothing is told by the environment."""
    for name in ("GEMM_LADDER_COMMIT", "GEMM_LADDER_DIRTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_environment_describes_this_machine():
    record = provenance.describe("cpu")
    assert json.loads(json.dumps(record)) == record
    assert record["slug"] == "cpu" and record["gpu"] is None
    assert record["cpu"] and record["torch"] and record["python"]
    assert record["date"].endswith("Z")


def test_changed_code_is_dirty_and_new_data_are_not(checkout):
    (checkout / "experiments" / "results").mkdir(parents=True)
    (checkout / "experiments" / "results" / "a.csv").write_text("a\n")
    assert provenance.describe("cpu")["dirty"] is False
    (checkout / "code.py").write_text("2\n")
    record = provenance.describe("cpu")
    assert record["dirty"] is True and record["changes"] == "code.py"


def test_another_repository_around_it_is_not_ours(checkout, monkeypatch):
    (checkout / "site-packages").mkdir()
    monkeypatch.setattr(provenance, "_ROOT", checkout / "site-packages")
    record = provenance.describe("cpu")
    assert record["commit"] is None and record["dirty"] is None
    assert record["changes"].startswith("unknown: this copy has no git repository of its own")


@pytest.mark.parametrize(
    ("told", "dirty", "words"),
    [
        (None, None, "0123456789 (local changes: unknown)"),
        ("0", False, "0123456789"),
        ("1", True, " with local changes"),
    ],
)
def test_a_copy_is_told_what_it_is_a_copy_of(checkout, monkeypatch, told, dirty, words):
    monkeypatch.setenv("GEMM_LADDER_COMMIT", COMMIT)
    if told is not None:
        monkeypatch.setenv("GEMM_LADDER_DIRTY", told)
    record = provenance.describe("cpu")
    assert (record["commit"], record["dirty"]) == (COMMIT, dirty)
    assert ("without GEMM_LADDER_DIRTY" in record["changes"]) == (dirty is None)
    assert environment.commit_of(record).endswith(words) and words in environment.caption([record])
    monkeypatch.setenv("GEMM_LADDER_DIRTY", "no")
    with pytest.raises(UsageError, match="GEMM_LADDER_DIRTY is 'no': give 1"):
        provenance.describe("cpu")


def test_links_are_counted_or_their_absence_is_recorded(monkeypatch):
    nvml = SimpleNamespace(
        NVML_NVLINK_MAX_LINKS=6,
        NVMLError=LookupError,
        nvmlDeviceGetNvLinkState=lambda _, link: [1, 1, 0, 1][link],  # IndexError is a LookupError: it has four
        nvmlDeviceGetNvLinkVersion=lambda *_: 7,
        nvmlShutdown=lambda: None,
    )
    monkeypatch.setattr(provenance.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(provenance.torch.cuda, "can_device_access_peer", lambda *_: True)
    monkeypatch.setattr(provenance, "open_gpu", lambda: (nvml, None))
    found = provenance.links()
    assert found["gpus"] == 2 and found["peer_access"] and (found["nvlinks"], found["nvlink_version"]) == (3, 7)
    monkeypatch.setattr(provenance, "open_gpu", raising(OSError("no library")))
    found = provenance.links()
    assert (found["nvlinks"], found["nvml_error"]) == (None, "no library")
