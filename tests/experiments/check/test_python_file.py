"""`experiments check` on Python files: Triton and Gluon kernels launched by functions of the user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.check.command import check
from experiments.check.cuda.cuda_file import Options
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.records.request import UsageError
from experiments.selection import make_request
from tests.imports import ROOT

triton = pytest.importorskip("triton")
tma = pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper").tma

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr = 32):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + row * K + k[None, :], mask=(row < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def gemm(a, b, c, block=32):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    kernel[grid](a, b, c, M, N, K, BLOCK_M=block, BLOCK_N=block)
"""
GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = gl.program_id(1) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(1, layout))[:, None]
    col = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
    acc = gl.zeros((BLOCK, BLOCK), gl.float32, layout)
    for k in range(0, K):
        a = gl.load(a_ptr + row * K + k, mask=row < M, other=0.0)
        b = gl.load(b_ptr + k * N + col, mask=col < N, other=0.0)
        acc += a * b
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    kernel[-(-N // 32), -(-M // 32)](a, b, c, M, N, K, BLOCK=32)
    return c
"""
# Products of several pairs, whose addresses are in tensors; B is read through a view that turns it.
GROUPED = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptrs, b_ptr, c_ptrs, M, N, K, stride_bn, stride_bk, BLOCK: tl.constexpr):
    a_ptr = tl.load(a_ptrs).to(tl.pointer_type(tl.float32))
    c_ptr = tl.load(c_ptrs).to(tl.pointer_type(tl.float32))
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K):
        a = tl.load(a_ptr + row * K + k, mask=row < M, other=0.0)
        acc += a * tl.load(b_ptr + k * stride_bk + col * stride_bn, mask=col < N, other=0.0)
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def products(group_A, group_B):
    made = []
    for A, B in zip(group_A, group_B):
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty((M, N), device="cuda")
        lists = (torch.tensor([x.data_ptr()], device="cuda") for x in (A, C))
        turned = B.t()
        pointers = next(lists), turned, next(lists)
        kernel[triton.cdiv(M, 32), triton.cdiv(N, 32)](*pointers, M, N, K, *turned.stride(), BLOCK=32)
        made.append(C)
    return made
"""
TUNED = TRITON.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}), triton.Config({"BLOCK_M": 64, "BLOCK_N": 32})], '
    'key=["M"])\n@triton.jit',
).replace(", BLOCK_M=block, BLOCK_N=block)", ")")


def report(folder: Path, text: str, sizes=("33x35x39",), **options):
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return check(path, Options(**options), make_request((), (), sizes, "", "cpu"))


@pytest.mark.parametrize("text", [TRITON, GLUON, TUNED], ids=["triton", "gluon", "autotuned"])
def test_a_sound_kernel(tmp_path, text):
    found = report(tmp_path, text)
    assert found.sound, found
    assert {line.array for line in found.lines if line.space == "global"} == {"A", "B", "C"}
    assert all(line.quote for line in found.lines)
    assert found.code[0].kernel == "kernel" and found.code[0].registers > 0
    assert any("allocates C itself" in note for note in found.notes) == (text is GLUON)


def test_a_missing_mask_is_named_with_its_line(tmp_path):
    found = report(tmp_path, TRITON.replace("mask=(row < M) & (k[None, :] < K)", "mask=row < M"))
    assert not found.sound
    (fault,) = found.faults
    assert fault.kind == "out of bounds" and fault.quote.startswith("a = tl.load(a_ptr")


def test_a_partial_store_and_a_dropped_tail(tmp_path):
    found = report(tmp_path, TRITON.replace("range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"))
    assert any("the last K % 32 products" in reason or "only the first 32 of 39" in reason for reason in found.why)
    half = TRITON.replace("acc, mask=(row < M) & (col < N)", "acc, mask=(row < M) & (col < N // 2)")
    assert "never written" in {fault.kind for fault in report(tmp_path, half).faults}


def test_it_is_judged_by_the_arithmetic_that_is_meant(tmp_path):
    found = report(tmp_path, TRITON, math="tf32")
    assert found.sound and {verdict.problem for verdict in found.verdicts} == {"33x35x39"}


def test_the_driver_is_left_as_it_was(tmp_path):
    before = triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active
    report(tmp_path, TRITON)
    assert (triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active) == before


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


def test_a_file_that_is_a_script_is_checked_as_it_lies(tmp_path):
    found = report(tmp_path, SCRIPT)
    assert found.sound, found
    assert "B is passed as it takes it, as N x K" in found.notes
    assert any("fp16" in note for note in found.notes)
    (left_out,) = (note for note in found.notes if "left out" in note)
    line = 1 + SCRIPT[: SCRIPT.index("import matplotlib")].count("\n")
    assert f"line {line} (ModuleNotFoundError: No module named 'matplotlib_of_the_authors')" in left_out
    assert "it launches kernel" in left_out and "NameError" not in left_out


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
    request = make_request((), (), ("33x35x39",), "", "cpu")
    found = check(package / "kernel.py", Options(kernel="matmul"), request)
    assert found.sound and found.name == "matmul", found
    assert (sys.path, sys.meta_path) == before[:2] and not {"tiles", "project.ops"} & (set(sys.modules) - before[2])


def test_the_line_of_the_file_that_refuses_a_size(tmp_path):
    with pytest.raises(UsageError, match=r"kernel.py:\d+: `assert x.shape\[0\] % 3 == 0` stops product"):
        report(tmp_path, SCRIPT, sizes=("32x35x39",))


def test_one_kernel_in_two_files_is_quoted_from_the_one_that_is_checked(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / f"{name}.py"
        path.write_text(GLUON, encoding="utf-8")
        found = check(path, Options(), make_request((), (), ("33x35x39",), "", "cpu"))
        assert {line.file for line in found.lines} == {path.name}


def test_where_the_compiler_stops(tmp_path):
    text = TRITON.replace("acc = tl.zeros", "odd = tl.arange(0, 33)\n    acc = tl.zeros")
    line = 1 + text[: text.index("odd")].count("\n")
    with pytest.raises(UsageError, match=rf"kernel.py:{line}: `odd = tl.arange\(0, 33\)` does not compile: arange's"):
        report(tmp_path, text)


def test_constants_and_batches(tmp_path):
    found = report(tmp_path, TUNED, define=("BLOCK_M=64",))
    assert found.sound and found.code[0].shared_bytes > report(tmp_path, TUNED).code[0].shared_bytes
    batches = GLUON.replace("(M, K), N = a.shape, b.shape[1]", "(_, M, K), N = a.shape, b.shape[2]")
    found = report(tmp_path, batches.replace("empty((M, N)", "empty((1, M, N)"))
    assert found.sound and "it takes batches of matrices: it is given a batch of one" in found.notes


def test_addresses_in_tensors_and_views(tmp_path):
    found = report(tmp_path, GROUPED)
    assert found.sound and found.how == "products(group_A=[A], group_B=[B])"
    assert {line.array for line in found.lines} >= {"A", "B", "C"}
    (fault,) = report(tmp_path, GROUPED.replace("K + k, mask=row < M", "K + k + 1, mask=row < M")).faults
    assert fault.kind == "out of bounds" and " of A (" in fault.text


SCALED = (
    GLUON.replace("BLOCK: gl.constexpr", "alpha, beta, d_ptr, BLOCK: gl.constexpr")
    .replace("    gl.store(", "    d = gl.load(d_ptr + row * N + col, mask=(row < M) & (col < N))\n    gl.store(")
    .replace("+ col, acc, mask", "+ col, alpha * acc + beta * d, mask")
    .replace("matmul(a, b)", "addmm(input, mat1, mat2, *, beta=1, alpha=1)")
    .replace("    (M, K), N", "    a, b = mat1, mat2\n    (M, K), N")
    .replace("M, N, K, BLOCK=32", "M, N, K, alpha, beta, input, BLOCK=32")
)


def test_alpha_and_beta(tmp_path):
    found = report(tmp_path, SCALED)
    assert found.sound, found
    assert not report(tmp_path, SCALED.replace("beta * d", "d")).sound


def test_factors_are_ones_of_any_shape(tmp_path):
    text = GLUON.replace("c_ptr, M", "c_ptr, a_s, b_s, M").replace(
        "matmul(a, b)", "fp16_gemm(a, a_s, b, w_scales, scale)"
    )
    text = text.replace("acc += a * b", "acc += (a * gl.load(a_s + row)).to(gl.float32) * b * gl.load(b_s + col)")
    text = text.replace("a, b, c, M", "a, b, c, a_s, w_scales, M").replace("return c", "return c * scale")
    found = report(tmp_path, text)
    assert found.sound and "A and B are fp16, by what the file says of types: --math says another" in found.notes


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


@pytest.mark.parametrize("text", [OWN_TUNER, AGAIN], ids=["tuner", "again"])
def test_other_ways_to_launch(tmp_path, text):
    assert report(tmp_path, text).sound


INT8 = (
    GLUON.replace("def matmul(a, b):", "def int8_matmul(a, b):\n    assert a.dtype == b.dtype == torch.int8")
    .replace("gl.float32", "gl.int32")
    .replace("acc += a * b", "acc += a.to(gl.int32) * b")
)
MIXED = "(a, quant_w):\n    b = quant_w\n    assert (a.dtype, b.dtype) == (torch.half, torch.int8)"
BLOCKS = "    assert a_s.shape == (M, -(-K // block_size[1])) and b_s.shape == (-(-N // 128), a_s.shape[1])\n    c ="
FORMS = [
    (INT8.replace("dtype=a.dtype", "dtype=torch.int32"), "int8"),
    (INT8.replace("dtype=a.dtype", "dtype=torch.float16").replace("+ col, acc,", "+ col, acc.to(gl.float16),"), "int8"),
    (GLUON.replace("(a, b):", MIXED).replace("a * b", "a.to(gl.float32) * b.to(gl.float32)"), "fp16 and int8"),
    (GLUON.replace("(a, b):", "_of_blocks(a, b, a_s, b_s, block_size: list[int]):").replace("    c =", BLOCKS), "fp32"),
]


@pytest.mark.parametrize(("text", "elements"), FORMS, ids=["int8", "int8-half", "half-int8", "blocks"])
def test_what_a_function_takes_is_found(tmp_path, text, elements):
    found = report(tmp_path, text)
    assert found.sound, found
    note = f"A and B are {elements}, by what the file says of types: --math says another"
    assert elements == "fp32" or note in found.notes


def test_a_tile_that_is_the_whole_matrix(tmp_path):
    text = TRITON.replace("BLOCK_M=block, BLOCK_N=block", "BLOCK_M=M, BLOCK_N=N")
    found = report(tmp_path, text, sizes=())
    assert found.sound and "64x64x64" in {verdict.problem for verdict in found.verdicts}
    assert max(verdict.n for verdict in found.verdicts) == 64
    assert any("its tile is the whole matrix" in note for note in found.notes)


def test_a_name_that_gluon_has_no_more():
    for old, new in renamed().items():  # none in the oldest Triton
        with pytest.raises(RuntimeError, match="has been removed"):
            getattr(tma, old)(_semantic=True)
        with StandIn(MODELS["sm_90"]).present():
            assert getattr(tma, old) is getattr(tma, new)


def test_a_bias_is_drawn(tmp_path):
    text = GLUON.replace("BLOCK: gl.constexpr", "bias_ptr, BLOCK: gl.constexpr").replace(
        "matmul(a, b)", "linear(x, weight, bias)"
    )
    text = text.replace("    (M, K), N", "    a, b = x, weight\n    (M, K), N").replace(
        "M, N, K, BLOCK=32", "M, N, K, bias, BLOCK=32"
    )
    added = text.replace("    gl.store(", "    acc += gl.load(bias_ptr + col, mask=col < N)\n    gl.store(")
    assert report(tmp_path, added).sound and not report(tmp_path, text).sound


def test_triton_cuts_fp32_operands_unless_it_is_told_not_to(tmp_path):
    text = TRITON.replace(', input_precision="ieee"', "")
    found = report(tmp_path, text)
    assert found.sound and any("it is judged as tf32" in note for note in found.notes)
    assert not any("it is judged as tf32" in note for note in report(tmp_path, text, math="fp32").notes)


def test_what_torch_and_triton_say_of_the_gpu_is_the_models(tmp_path):
    text = SCRIPT.replace("arch == 90", "arch == 80").replace("is_cuda and", "is_cuda and PROGRAMS == 108 and")
    assert report(tmp_path, text, like="sm_80").sound
    assert not torch.cuda.is_available() or torch.cuda.get_device_name() != "NVIDIA A100-SXM4-80GB"


def test_a_check_waits_for_no_library_that_it_does_not_use(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("x = 1", encoding="utf-8")
    code = (
        f"import sys; sys.argv = ['gemm', 'check', {str(path)!r}]\n"
        "from experiments.cli import main\n"
        "try: main('gemm')\n"
        "finally: print(*{'pandas', 'seaborn', 'matplotlib', 'hypothesis', 'jinja2', 'torch'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 2 and run.stdout.split() == ["torch"], run.stderr


USAGE = [
    ("import nowhere_to_be_found", {}, "there is none (left out: line 1: ModuleNotFoundError: No module named"),
    ("x = 1", {}, "gemm(a, b, c) or gemm(a, b): there is none"),
    ("x = (", {}, "kernel.py:1: '(' was never closed: is it Python 3?"),
    ("def f(a, b): pass\ndef g(a, b): pass", {}, "pass --kernel with one of f, g"),
    ("def f(a, b): pass", {"kernel": "g"}, "no function g that launches a kernel: there is f"),
    ("def f(a, n): pass", {}, "f(a, n) has no two matrices among its parameters"),
    (
        "def fused_softmax(a, b): pass",
        {},
        "fused_softmax(a, b) computes more than a product, by its name (softmax): check",
    ),
    ("def f(a, b, turns): pass", {}, "f(a, b, turns) takes turns, whose value the file does not tell: pass -D turns="),
    ("def f(a, b): return a @ b", {}, "launched no Triton kernel"),
    ("def f(a, b): a.nothing", {}, "kernel.py:1: `def f(a, b): a.nothing` stops f: AttributeError"),
    ("from nowhere import g\ndef f(a, b): g(a)", {}, "name 'g' is not defined (line 1: ModuleNotFoundError"),
    (GLUON.replace("return c", "return a"), {}, "must return C of shape (33, 35); it returned one of (33, 39)"),
    ("def f(a, b): pass", {"block": "16"}, "--block is for CUDA"),
    (GLUON, {"define": "X=1"}, "-D X is no parameter of matmul and no constant of its kernels"),
    (TUNED, {"define": "BLOCK_M=7"}, "no configuration that gemm is tuned over has the values that -D gives"),
    (GLUON, {"like": "sm_1"}, "--like sm_1 is no GPU known here"),
]


@pytest.mark.parametrize(("text", "options", "message"), USAGE, ids=[message[:30] for *_, message in USAGE])
def test_usage_errors(invoke, tmp_path, text, options, message):
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = invoke("check", path, "--device", "cpu", "--size", "33x35x39", *given)
    assert result.exit_code == 2, result.output
    assert message in result.said, result.output
