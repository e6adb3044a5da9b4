"""Files as they lie: scripts, members of projects, what is not there, and tuners of their own."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from experiments.check.messages import Note
from experiments.records.request import UsageError
from tests.experiments.check.helpers import check_file, values
from tests.experiments.check.python.sources import GLUON, TRITON, TUNED, Case, report

# A tutorial: it asks its GPU, tests and times itself, imports what is not there, takes B as N x K, and returns half.
SCRIPT = (
    TRITON[: TRITON.index("def gemm")].replace("k[:, None] * N + col", "col * K + k[:, None]")
    + """
import matplotlib_of_the_authors as plt

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROGRAMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
assert triton.runtime.driver.active.get_current_target().arch == 90


def product(x, weight, activation, out_dtype=torch.float16, *, use_bias: bool):
    assert x.shape[1] == weight.shape[1], "inner sizes differ"
    assert x.is_cuda and weight.device == DEVICE and x.dtype == torch.float16
    assert x.shape[0] % 3 == 0
    (M, K), N = x.shape, weight.shape[0]
    c = torch.empty((M, N), device=DEVICE, dtype=out_dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    kernel[grid](x, weight, c, M, N, K, BLOCK_M=32, BLOCK_N=32)
    return c


torch.manual_seed(0)
x, weight = (torch.randn((8190, 8190), device="cuda", dtype=torch.float16) for _ in range(2))
out = product(x, weight, "relu", use_bias=False)
if torch.allclose(out, x @ weight.T):
    print("it is right")


@triton.testing.perf_report(triton.testing.Benchmark(["M"], [4096], "by", ["triton"], ["Triton"], "time", {}))
def benchmark(M, by):
    return triton.testing.do_bench(lambda: product(x, weight, "", use_bias=False))


benchmark.run(show_plots=True, print_data=True)
plt.show()
"""
)


def test_a_file_that_is_a_script_is_checked_as_it_lies():
    found = report(SCRIPT)
    assert found.sound, found
    assert found.assumed == "B stored as N x K"
    assert values(found.notes, Note.ELEMENTS_FROM_TEXT) == {"elements": "fp16"}
    left_out = values(found.notes, Note.CODE_LEFT_OUT)["lines"]
    line = 1 + SCRIPT[: SCRIPT.index("import matplotlib")].count("\n")
    assert f"line {line} (ModuleNotFoundError: No module named 'matplotlib_of_the_authors')" in left_out
    assert "it launches kernel" in left_out and "NameError" not in left_out


def test_the_line_of_the_file_that_refuses_a_size():
    with pytest.raises(UsageError, match=r"kernel.py:\d+: `assert x.shape\[0\] % 3 == 0` stops product"):
        report(SCRIPT, sizes=("32x35x39",))


def test_what_torch_and_triton_say_of_the_gpu_is_the_models():
    text = SCRIPT.replace("arch == 90", "arch == 80").replace("is_cuda and", "is_cuda and PROGRAMS == 108 and")
    assert report(text, like="sm_80").sound
    assert not torch.cuda.is_available() or torch.cuda.get_device_name() != "NVIDIA A100-SXM4-80GB"


HELPERS = """
import not_installed

CONVERTER = not_installed.Converter()


def made(a, b):
    import torch
    from tiles import SIDE
    return torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype), SIDE
"""
MEMBER = (
    GLUON.replace(
        "import torch\n", "import torch\nimport not_installed\nfrom not_installed.of_triton import triton, tl\n"
    )
    .replace("@gluon.jit", "@not_installed.registered\n@gluon.jit")
    .replace("def matmul(a, b)", "def launch(a, b, c, M, N, K)")
    .replace("    (M, K), N = a.shape, b.shape[1]\n    c = torch.empty((M, N), dtype=a.dtype, device=a.device)\n", "")
    .replace("kernel[-(-N // 32), -(-M // 32)]", "kernel[triton.cdiv(N, 32), triton.cdiv(M, 32)]")
    + """

@not_installed.overload
def matmul(a, b):
    from .helpers import made
    c, side = made(a, b)
    assert side == 32 and tl.float32
    return launch(a, b, c, *c.shape, a.shape[1])
"""
)


def test_a_member_of_a_project_of_which_not_all_is_there(tmp_path):
    package = tmp_path / "project" / "ops"
    package.mkdir(parents=True)
    (tmp_path / "setup.py").touch()
    for name, text in {"__init__.py": "import not_installed", "helpers.py": HELPERS, "kernel.py": MEMBER}.items():
        (package / name).write_text(text, encoding="utf-8")
    (tmp_path / "tiles.py").write_text("SIDE = 32", encoding="utf-8")
    before = list(sys.path), list(sys.meta_path), set(sys.modules)
    found = check_file(package / "kernel.py", ("33x35x39",), kernel="matmul")
    assert found.sound and found.name == "matmul", found
    assert (sys.path, sys.meta_path) == before[:2] and not {"tiles", "project.ops"} & (set(sys.modules) - before[2])


# A tuner of somebody's own, which times by itself, and a kernel that is launched as it was compiled before.
OWN_TUNER = TUNED.replace("@triton.autotune(", "@tuned(").replace(
    "\n@tuned(",
    """
class Tuner(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        self.best_config = min(self.configs, key=lambda config: self._bench(*args, config=config, **kwargs))


def tuned(configs, key):
    return lambda fn: Tuner(fn, fn.arg_names, configs, key, None, None)


@tuned(""",
)
AGAIN = GLUON.replace("    kernel[-(-N", "    made = kernel[-(-N").replace(
    "    return c", "    c.zero_()\n    made and made[-(-N // 32), -(-M // 32), 1](a, b, c, M, N, K, 32)\n    return c"
)


# A fork's name, old packages and options of another GPU stop its tuner and its launch, where Triton is another.
FORK = (
    TUNED.replace("@triton.autotune([", "@triton.autotune([*of_the_fork(), ")
    .replace(
        "@triton.autotune",
        "def of_the_fork():\n    return triton.runtime.driver.active.get_current_target().of_this_fork()\n\n\n"
        "@triton.autotune",
    )
    .replace("M, N, K)", "M, N, K, grf_mode='large')")
)


# torch's dispatcher is told of it; its kernel and its configuration are for the caller to say.
OPERATOR = (
    TRITON.replace("def gemm(a, b, c, block=32)", "def launch(a, b, c, config: triton.Config)")
    .replace("BLOCK_M=block, BLOCK_N=block", "**config.kwargs")
    .replace("BLOCK_K: tl.constexpr = 32", "BLOCK_K: tl.constexpr")
    + """

@torch.library.triton_op("of_a_test::gemm", mutates_args={})
def gemm(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor) -> torch.Tensor:
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    a = triton.reinterpret(a, tl.float32)
    torch.library.wrap_triton(kernel)[grid](a, b, c, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return c
"""
)


# Each program makes its descriptors; the reference GPU has none of the instructions that Hopper makes them with.
DESCRIBED = re.sub(
    r"        k = start.*?\n        acc = ",
    "        a, b = a_map.load([at, start]), b_map.load([start, to])\n        acc = ",
    TRITON.replace(
        "    acc = tl.zeros",
        "    at, to = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N\n"
        "    a_map = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])\n"
        "    b_map = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK_N])\n"
        "    acc = tl.zeros",
        1,
    ),
    flags=re.DOTALL,
)


# Launched on matrices of its own alone, with strides by name; and only a kernel.
DEMO = (
    TRITON[: TRITON.index("def gemm")]
    .replace("M, N, K, BLOCK_M", "M, N, K, stride_am, b_k_stride, ldc, BLOCK_M")
    .replace("row * K", "row * stride_am")
    .replace("k[:, None] * N", "k[:, None] * b_k_stride")
    .replace("row * N", "row * ldc")
)
LAUNCHED = (
    DEMO
    + """

def demo():
    (M, K, N), side = (64, 64, 64), 16
    a, b, c = (torch.ones(64, 64, device="cuda") for _ in range(3))
    grid = (triton.cdiv(M, side), triton.cdiv(N, 32))
    kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), side, 32)
    assert torch.allclose(c, a @ b)


if __name__ == "__main__":
    demo()
"""
)


SQUARES = DEMO + "\n\ndef bench(N):\n    x = torch.ones(N, N)\n    kernel[(1,)](x, x, x, N, N, N, N, N, N, N, N)\n"
ALONE = "kernel(a_ptr=A, b_ptr=B, c_ptr=C, M, N, K"
TUNED_BY_HAND = {Note.TUNER_REPLACED: {"kernel": "kernel", "values": "BLOCK_M=64, BLOCK_N=64"}}
CASES = {
    "a tuner of its own": Case(OWN_TUNER),
    "a kernel as it was compiled": Case(AGAIN),
    "common values for a tuner that fails": Case(
        FORK, notes=TUNED_BY_HAND | {Note.FOREIGN_OPTIONS: {"names": "grf_mode"}}
    ),
    "a value that is told for a tuner that fails": Case(
        FORK, notes={Note.TUNER_REPLACED: {"values": "BLOCK_M=64, BLOCK_N=32"}}, options={"define": ("BLOCK_N=32",)}
    ),
    "an operator": Case(OPERATOR, options={"kernel": "gemm"}),
    "a configuration of the caller": Case(OPERATOR, options={"kernel": "launch"}),
    "descriptors that the kernel makes": Case(
        DESCRIBED, notes={Note.COMPILED_WITHOUT_TMA: {}}, options={"sizes": ("32x36x40",)}
    ),
    "a tuned kernel alone": Case(TUNED[: TUNED.index("def gemm")], how=f"{ALONE})"),
    "a kernel alone": Case(DEMO, how=f"{ALONE}, BLOCK_M=64, BLOCK_N=64)", notes={Note.KERNEL_LAUNCHED_ALONE: {}}),
    "a kernel of a demo": Case(
        LAUNCHED, how=f"{ALONE}, BLOCK_M=16, BLOCK_N=32)", notes={Note.KERNEL_LAUNCHED_ALONE: {}}
    ),
    "a kernel for squares alone": Case(
        SQUARES,
        "sound: right at all 2 sizes run, without a fault; it refuses 1 other",
        f"{ALONE}, BLOCK_M=K, BLOCK_N=K)",
        options={"sizes": ()},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ways_to_launch(case):
    CASES[case].check()


@pytest.mark.parametrize(
    "text",
    [DESCRIBED.replace("[start, to]", "[start, to + 4]"), LAUNCHED.replace("row * ldc", "row * stride_am")],
    ids=["a descriptor", "a kernel of a demo"],
)
def test_what_is_wrong_however_it_is_launched(text):
    assert not report(text, sizes=("32x36x40",)).sound
