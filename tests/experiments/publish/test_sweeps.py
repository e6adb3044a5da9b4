"""The table of docs/tensor_cores.md from `squares` and `shapes`."""

from __future__ import annotations

from experiments.publish.answer import Answer
from experiments.publish.docs import sweeps
from experiments.publish.outcomes import outcome
from experiments.records import store
from tests.experiments.fixtures import ENVIRONMENT, sweep_rows


def test_what_is_said_of_tensor_cores(tmp_path):
    assert sweeps.block("tensor_sweeps", tmp_path) == "not measured"
    store.save(tmp_path, "squares", sweep_rows("squares", [(256,) * 3, (1025,) * 3]), ENVIRONMENT)
    store.save(tmp_path, "shapes", sweep_rows("shapes", [(1, 4096, 4096), (2048, 6144, 4096)]), ENVIRONMENT)
    text = sweeps.block("tensor_sweeps", tmp_path)
    for line in (
        "| bf16 | squares | 1 | Triton | 90.0%, median 90.0%; 90.0% at 256 x 256 x 256;",
        "| bf16 | few rows | 1 | Triton | 45.0%, median 45.0%; 45.0% at 1 x 4096 x 4096;",
    ):
        assert line in text
    assert "NVIDIA Fixture" in text and "fp32" not in text and ".png" not in text
    (tmp_path / "squares_tensor_cores.png").touch()
    assert f"{tmp_path.name}/squares_tensor_cores.png" in sweeps.block("tensor_sweeps", tmp_path)
    assert Answer(tmp_path).paragraphs() == []  # which nothing was timed for at the size of the tables
    assert "90.0% in fp8 (at 256)" in outcome("squares", store.read(tmp_path, "squares"))
