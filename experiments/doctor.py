"""Diagnosis of a machine: what the experiments need, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.bench import provenance
from gemm_ref import DIALECTS, build, toolchain
from gemm_ref.build import BuildError, find_cxx, find_ninja, version_of
from gemm_ref.dialect import BY_HAND
from gemm_ref.sass.tools import find as find_sass_tool

# "missing" stops `make experiments` on this machine; "absent" is something that only adds to it.
MARKS = {"ok": "[green]ok[/]", "absent": "[yellow]--[/]", "missing": "[red]missing[/]"}
_PACKAGES = ("torch", "triton", "numpy", "scipy", "pandas", "seaborn", "jinja2", "pygments")
_EXTRAS = (  # package, what it adds, what pip takes
    ("nvmath-python", "the best of cuBLASLt's algorithms", "'nvmath-python[cu13]'"),
    ("nvidia-cutlass", "CUTLASS's own GEMMs", "nvidia-cutlass"),
)
_INSTALL = "`make setup` installs it, or `pip install {}`"
_DRIVER = Path("/proc/driver/nvidia")
_DRIVER_PARAMETERS = _DRIVER / "params"


@dataclass(frozen=True)
class Finding:
    """One requirement, whether this machine meets it, and what to do if it does not."""

    what: str
    state: str  # a key of MARKS
    finding: str
    advice: str = ""


def diagnose() -> list[Finding]:
    """Returns a finding for everything that the experiments use, in the order in which a new user needs it."""
    packages = [_package(name) for name in _PACKAGES]
    python = Finding("Python", "ok", f"{platform.python_version()} on {provenance.cpu_name()}")
    reading = [_tool("ptxas", _find_ptxas, _release, "absent"), _tool("nvdisasm", _find_nvdisasm, _release, "absent")]
    tools = [_cxx(), _tool("ninja", find_ninja, str), _nvcc(), *reading]
    extras = [_extra(*extra) for extra in _EXTRAS]
    return [python, *packages, *extras, *tools, _cache(), *_gpus(), _counters()]


def missing_for(dialect: str) -> str:
    """Returns which compilers of a dialect are missing here and what to do; empty if none is missing."""
    compiled_by_nvcc = DIALECTS[dialect].backend == BY_HAND
    needs = [_cxx(), _nvcc()] if compiled_by_nvcc else [_package(DIALECTS[dialect].version)]
    return "; ".join(f"{item.what} {item.finding}: {item.advice}" for item in needs if item.state == "missing")


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", "not installed", _INSTALL.format(name))


def _extra(name: str, adds: str, install: str) -> Finding:
    """Checks a package that only some baselines need."""
    finding = _package(name)
    if finding.state == "ok":
        return finding
    return Finding(finding.what, "absent", finding.finding, f"only adds {adds} as a baseline: `pip install {install}`")


def _tool(what: str, find: Callable[[], object], describe: Callable[[str], str], state: str = "missing") -> Finding:
    """Checks the program that `find` returns the path of.

    describe: from the path to the finding. state: for a program that is not there, where `find` raises BuildError.
    """
    try:
        path = str(find())
    except BuildError as error:
        return Finding(what, state, "not found", str(error))
    try:
        return Finding(what, "ok", describe(path))
    except BuildError as error:
        return Finding(what, "missing", f"{path} does not run", str(error))


def _first_line(path: str) -> str:
    return f"{(version_of(path).splitlines() or ['?'])[0]} ({path})"


def _release(path: str) -> str:
    """Returns the release of one of NVIDIA's programs, and its path."""
    release = re.search(r"release [\d.]+", version_of(path))
    return f"{release.group() if release else 'unknown release'} ({path})"


def _cxx() -> Finding:
    return _tool("C++ compiler", find_cxx, _first_line)


def _nvcc() -> Finding:
    return _tool("nvcc", lambda: toolchain.find_toolkit() / "bin" / "nvcc", _release)


def _find_ptxas() -> str:
    bundled = None
    if spec := importlib.util.find_spec("triton"):
        bundled = shutil.which("ptxas", path=Path(spec.origin or "").parent / "backends" / "nvidia" / "bin")
    if path := bundled or shutil.which("ptxas"):
        return path
    raise BuildError("comes with Triton on Linux; only a GPU needs it")


def _find_nvdisasm() -> Path:
    try:
        return find_sass_tool("nvdisasm")
    except BuildError as error:
        raise BuildError(f"the instruction experiment reads machine code with it; {error}") from error


def _cache() -> Finding:
    """Where built kernels are kept."""
    try:
        build.CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=build.CACHE):
            pass
    except OSError as error:
        advice = "set GEMM_LADDER_BUILD to a folder that can be written"
        return Finding("built files", "missing", f"{build.CACHE} cannot be written ({error.strerror})", advice)
    return Finding("built files", "ok", str(build.CACHE))


def _gpus() -> list[Finding]:
    if torch.cuda.is_available():
        return [_gpu(index) for index in range(torch.cuda.device_count())]
    driver = _DRIVER.exists() or shutil.which("nvidia-smi")
    if driver and torch.version.cuda is not None:
        return [_unusable()]
    if driver:
        advice = "torch is a CPU build: install a CUDA build from https://pytorch.org/get-started/locally"
        return [Finding("GPU", "absent", "there is a driver, but torch cannot use it", advice)]
    advice = "nothing: kernels run on the reference GPU, and plots show published data"
    return [Finding("GPU", "absent", "none", advice)]


def _unusable() -> Finding:
    """What CUDA says where there is a driver and a CUDA build of torch, and still no GPU."""
    try:
        torch.cuda.init()
        said = "CUDA starts, but shows torch no GPU"
    except Exception as error:  # torch raises several kinds, and each is worth reading
        said = " ".join(str(error).split())
    advice = (
        f"see that `nvidia-smi` works and shows CUDA {torch.version.cuda} or newer (else update the driver), that "
        "CUDA_VISIBLE_DEVICES is unset or names a GPU, and that you may open /dev/nvidia*; or use --device cpu"
    )
    return Finding("GPU", "missing", said, advice)


def _gpu(index: int) -> Finding:
    properties = torch.cuda.get_device_properties(index)
    arch = f"sm_{properties.major}{properties.minor}"
    found = f"{properties.name}, {arch}, {properties.total_memory / 2**30:.0f} GiB, torch for CUDA {torch.version.cuda}"
    built = [(int(sm[:-1]), int(sm[-1])) for sm in re.findall(r"sm_(\d+)", " ".join(torch.cuda.get_arch_list()))]
    if built and (properties.major, properties.minor) < min(built):
        return Finding(f"GPU {index}", "absent", found, "older than this torch is built for: use --device cpu")
    if built and properties.major > max(built)[0]:
        advice = "newer than this torch is built for: install a newer torch, or use --device cpu"
        return Finding(f"GPU {index}", "absent", found, advice)
    return Finding(f"GPU {index}", "ok", f"{found}, driver {_driver()}")


def _driver() -> str:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


def _counters() -> Finding:
    """Whether hardware counters can be read; no experiment of `make experiments` depends on them."""
    what = "hardware counters"
    if not torch.cuda.is_available():
        return Finding(what, "absent", "no GPU", "the reference GPU runs without them")
    ncu = shutil.which("ncu")
    if ncu is None:
        return Finding(what, "absent", "ncu not found", "comes with Nsight Compute; put its folder on PATH")
    if os.geteuid() == 0:
        return Finding(what, "ok", f"{ncu}, as root")
    try:
        parameters = _DRIVER_PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        return Finding(what, "absent", f"{ncu}; the driver's setting cannot be read", "try `ncu --version` and a run")
    if re.search(r"RmProfilingAdminOnly:\s*1", parameters):
        advice = "run as root, or set the kernel module option NVreg_RestrictProfilingToAdminUsers=0 and reboot"
        return Finding(what, "absent", f"{ncu}, but the driver allows only administrators", advice)
    return Finding(what, "ok", f"{ncu}, open to all users")
