"""What nvcc compiles of CUDA's libraries and of calls, in features.cu.

A kernel per feature checks itself; others show what functions are given and give back, recursion, and the runtime's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import Observer
from tests.ptx.harness import compiled

SOURCE = Path(__file__).with_name("features.cu")
NAMES = re.findall(r"^FEATURE\((\w+)\)", SOURCE.read_text(encoding="utf-8"), re.M)
LANES = 64
NUMBERS = torch.tensor([0.5, 2, 3, -1.25, 0.75, 100, 1e-3, 7])
WHOLE = torch.tensor([3, -5, 1000, 0x12345678, 40, 7, 0, 1], dtype=torch.int32)


def text() -> str:
    return compiled(SOURCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_feature_works(name):
    """Each thread says so itself; only the memory that a kernel may use may stay unwritten."""
    ok, memory = torch.zeros(LANES, dtype=torch.int32), torch.zeros(64, dtype=torch.float64)
    launch = Launch((3 if name == "grid" else 1, 1, 1), (LANES, 1, 1))
    arguments = [ok, NUMBERS.clone(), WHOLE.clone(), memory]
    ptx.run(ptx.load(text(), name), launch, arguments, observers=[detectors := ptx.Detectors()])
    assert ok.tolist() == [1] * LANES
    if name in ("count", "group_copy"):
        assert {finding.kind for finding in detectors.findings} <= {"never written"}


# --- functions -----------------------------------------------------------------------------------------------

CALLERS = 40  # a warp, and a part of one


def run(name: str, *arguments: ptx.Struct, first: int = 0, observers: tuple[Observer, ...] = ()) -> list[int]:
    out = torch.full((CALLERS,), -7, dtype=torch.int32)
    out[0] = first
    launch = Launch((1, 1, 1), (CALLERS, 1, 1))
    ptx.run(ptx.load(text(), name), launch, [*arguments, out], observers=observers)
    return out.tolist()


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def total(n: int, above: int = 0) -> int:
    mine = above + n
    return mine if n == 0 else total(n - 1, mine) ^ mine


WANT = {
    "call": lambda i: 3 * i + 2,
    "call_of_some": lambda i: 3 * i + 1 if i % 3 == 0 else -7,
    "recursion": lambda i: fibonacci(i % 12),
    "recursion_with_locals": lambda i: total(i % 10),
    "pointers": lambda i: (3, 5)[i % 2] * i + 1,
    "virtuals": lambda i: 1,
    "allocates": lambda i: i,
}


@pytest.mark.parametrize("name", WANT)
def test_functions_of_the_module(name):
    found = run(name, first=16 if name == "allocates" else -7 * (name == "call_of_some"))
    assert found == [WANT[name](i) for i in range(CALLERS)]


def test_a_method_is_chosen_by_the_object():
    assert run("virtuals", first=1) == [i * i for i in range(CALLERS)]


def test_arguments_by_value():
    pair = ptx.Struct(((0, "s32", 3), (4, "f32", 4.0)))
    assert run("structs", pair) == [4003 + i for i in range(CALLERS)]
    array = ptx.Struct(tuple((4 * i, "s32", i * i) for i in range(40)))
    assert run("array", array) == [i * i for i in range(CALLERS)]


def test_threads_print_in_their_order(capsys):
    want = "".join(f"{i}  1.50|abc |x {1 << 40} ffffffff % 0x10\n" for i in range(2))
    run("prints")
    assert capsys.readouterr().out == want

    class Printed(Observer):
        text = ""

        def on_print(self, text: str) -> None:
            self.text += text

    run("prints", observers=(printed := Printed(),))
    assert printed.text == want and capsys.readouterr().out == ""


def test_a_heap_has_an_end():
    assert run("allocates", first=6 << 20)[:2] == [0, -1]


def test_a_sibling_that_cannot_be_read_stops_nobody():
    broken = text().replace(
        ".visible .entry call(", ".visible .entry broken(.param .u64 p)\n{ .bogus 1; }\n.visible .entry call("
    )
    assert ptx.load(broken, "call").name == "call"
