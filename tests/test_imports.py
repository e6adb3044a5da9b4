"""The house: no circle of files, imports that run one way, and folders that one can take in at a look."""

from __future__ import annotations

from collections import Counter

from tests import imports

MOST_FILES = 16  # of a folder
# As many files as the ladder has rungs, as there are experiments, and as kernels share ideas
RUNGS = ("cuda_kernels", "triton_kernels", "triton_kernels/gluon")
OTHERS = ("experiments/records", "cuda_kernels/include")
SOURCES = ("*.py", "*.cu", "*.cuh", "*.cpp")


def test_no_circle_of_files():
    assert imports.circles(imports.house().values()) == []


def test_imports_run_one_way():
    assert imports.upward(imports.house().values()) == []


def test_no_folder_holds_more_than_one_can_take_in():
    paths = [path for package in imports.PACKAGES for kind in SOURCES for path in (imports.ROOT / package).rglob(kind)]
    folders = Counter(str(path.parent.relative_to(imports.ROOT)) for path in paths if path.name != "__init__.py")
    assert {
        folder: count for folder, count in folders.items() if count > MOST_FILES and folder not in RUNGS + OTHERS
    } == {}
