"""What is refused, with the whole message: messages.txt has a kernel's text and its error, by the area of the fault.

`python -m tests.ptx.text.test_messages` writes the errors again, which a reader then compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gemm_ref import ptx
from tests.ptx.harness import kernel_text, run_kernel, run_lanes
from tests.ptx.isa import test_wmma
from tests.ptx.units import test_bulk_copies, test_cluster, test_mbarriers, test_wgmma

FILE = Path(__file__).with_name("messages.txt")
REGISTERS = ".reg .b32 %r<5>; .reg .f32 %f<5>; .reg .f64 %d<5>; .reg .b16 %h<5>; .reg .pred %p<5>;\n"
AREAS: dict[str, Callable[[str], object]] = {
    "instructions": lambda body: ptx.load(kernel_text(REGISTERS + body)),
    "mbarriers": test_mbarriers.results,
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


def entries() -> list[tuple[str, str, str]]:
    """Returns the area, the text and the error of each entry; an error is indented, and an area begins with #."""
    area, body, found = "", "", []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            area = line[2:]
        elif line.startswith(" "):
            found.append((area, body, line.strip()))
        else:
            body = line
    return found


def error_of(area: str, body: str) -> str:
    """Returns the error in one line, without virtual addresses and what Python says of operands."""
    with pytest.raises(ptx.PtxError) as caught:
        AREAS[area](body)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", str(caught.value).replace("\n", " | "))
    text = re.sub(r"(operands not understood) \(.*\)", r"\1", text)
    return f"{type(caught.value).__name__}: {text}"


@pytest.mark.parametrize("area, body, error", entries())
def test_what_is_refused_is_named_with_its_line(area, body, error):
    assert error_of(area, body) == error


def main() -> None:
    lines, last = [], ""
    for area, body, _ in entries():
        lines += [f"# {area}"] if area != last else []
        lines += [body, f"    {error_of(area, body)}"]
        last = area
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
