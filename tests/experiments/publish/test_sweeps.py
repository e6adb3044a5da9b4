"""The table of docs/tensor_cores.md from `squares` and `shapes`."""

from __future__ import annotations

import gemm_ref
from experiments.publish.answer import Answer
from experiments.publish.docs import sweeps
from experiments.publish.outcomes import outcome
from experiments.records import store
from tests.experiments.fixtures import ENVIRONMENT, sweep_rows

TENSOR_MODES = [math for math in gemm_ref.MATHS if math != "fp32"]


def test_what_is_said_of_tensor_cores(tmp_path):
    assert sweeps.block("tensor_sweeps", tmp_path) == "not measured"
    store.save(tmp_path, "squares", sweep_rows("squares", [(256,) * 3, (1025,) * 3]), ENVIRONMENT)
    store.save(tmp_path, "shapes", sweep_rows("shapes", [(1, 4096, 4096), (2048, 6144, 4096)]), ENVIRONMENT)
    text = sweeps.block("tensor_sweeps", tmp_path)
    assert "| bf16 | CUDA | 90.0% | 256 | 64% | 45.0% | 1 x 4096 x 4096 |" in text and "NVIDIA Fixture" in text
    assert "fp32" not in text and ".png" not in text
    (tmp_path / "squares_tensor_cores.png").touch()
    assert f"{tmp_path.name}/squares_tensor_cores.png" in sweeps.block("tensor_sweeps", tmp_path)
    answer = Answer(tmp_path)
    assert list(answer.shapes) == TENSOR_MODES
    assert [f"{100 * mean:.0f}" for mean in answer.shapes["tf32"].mean.values()] == ["64"] * 3
    assert answer.paragraphs() == []  # which no mode was timed for at the size of the tables
    assert "90.0% in fp8 (at 256)" in outcome("squares", store.read(tmp_path, "squares"))
    assert "360% in fp16x3 (of cuBLAS SGEMM) (at 256)" in outcome("squares", store.read(tmp_path, "squares"))
    assert "at worst 45.0% (tf32, CUDA, 1 x 4096 x 4096)" in outcome("shapes", store.read(tmp_path, "shapes"))
