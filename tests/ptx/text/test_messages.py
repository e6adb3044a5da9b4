"""What is refused, with the whole message: messages.txt has a kernel's text or a call, and its error.

`python -m tests.ptx.text.test_messages` rewrites the errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, ptx
from tests.messages import Messages
from tests.ptx.core import test_programs
from tests.ptx.harness import HEADER, kernel_text, run_kernel, run_lanes
from tests.ptx.isa import test_wmma
from tests.ptx.units import test_bulk_copies, test_cluster, test_wgmma

REGISTERS = ".reg .b32 %r<5>; .reg .f32 %f<5>; .reg .f64 %d<5>; .reg .b16 %h<5>; .reg .pred %p<5>;\n"


def empty_kernel(*parameters: str, head: str = "") -> str:
    return f"{HEADER}.visible .entry k({', '.join(f'.param {each}' for each in parameters)})\n{head} {{ ret; }}"


def start(text: str, *arguments, grid: int = 1, cluster: int = 1) -> None:
    """Launches a kernel of one thread a block."""
    ptx.run(ptx.load(text), Launch((grid, 1, 1), (1, 1, 1), cluster=(cluster, 1, 1)), list(arguments))


AREAS = {
    "instructions": lambda body: ptx.load(kernel_text(REGISTERS + body)),
    "mbarriers": lambda text: test_programs.run("mbarriers", [text], 32),
    "clusters": lambda body: test_cluster.results(body, (2, 1, 1), (2, 1, 1)),
    "tensor copies": lambda body: run_kernel(
        f"{test_bulk_copies.HEAD}\n{body}", [ptx.TensorMap(torch.zeros(8, 8), (8, 8)), torch.zeros(4)]
    ),
    "copies of bytes": lambda body: run_kernel(
        f"{test_bulk_copies.HEAD_OF_BYTES}\n{body}", [torch.zeros(96), torch.zeros(1)]
    ),
    "faults": run_lanes,
    "wgmma": lambda body: run_kernel(
        test_wgmma.HEAD + body, [torch.zeros(test_wgmma.BYTES, dtype=torch.uint8), torch.zeros(4)], block=(128, 1, 1)
    ),
    "wmma": lambda body: run_kernel(test_wmma.LOAD.replace("CHANGE", body)),
}
FILE = Path(__file__).with_name("messages.txt")
MESSAGES = Messages(FILE, {"start": start, "empty_kernel": empty_kernel}, AREAS)


@pytest.mark.parametrize("area, text, error", list(MESSAGES.entries()))
def test_what_is_refused_is_named_with_its_line(area, text, error):
    assert MESSAGES.error_of(area, text) == error


if __name__ == "__main__":
    MESSAGES.main()
