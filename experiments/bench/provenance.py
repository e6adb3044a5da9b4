"""The machine and its software as a record: where and with what a measurement is made."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from experiments.bench import timers
from experiments.bench.telemetry import open_gpu
from experiments.records.request import UsageError
from gemm_ref.build import BuildError, version_of
from gemm_ref.toolchain import find_toolkit

_ROOT = Path(__file__).resolve().parents[2]
_MAX_NAMED = 5  # changed files that are listed by name
_DIRTY = {"": None, "0": False, "1": True}  # values of GEMM_LADDER_DIRTY


def describe(device: str) -> dict:
    """Returns the current environment as plain JSON values; None stands for what cannot be known."""
    commit, dirty, changes = _commit()
    name = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "dirty": dirty,
        "changes": changes,
        "device": name,
        "slug": slug(device),
        "gpu": gpu() if device == "cuda" else None,
        "links": links() if device == "cuda" else None,
        "events_us": timers.events_us() if device == "cuda" else None,
        "cuda": torch.version.cuda,
        "cpu": cpu_name(),
        "cpu_threads": torch.get_num_threads(),
        "os": platform.platform(),
        **versions(),
    }


def versions() -> dict[str, str | None]:
    """The versions of what runs kernels on the reference GPU and of the compilers; None if it is not installed."""
    packages = {package: _version(package) for package in ("torch", "triton", "numpy")}
    return {"python": platform.python_version(), **packages, "nvcc": _nvcc_version()}


def slug(device: str) -> str:
    """The name of the device's results folder: `cpu`, or the GPU's name as in `nvidia-h200`."""
    if device == "cpu":
        return "cpu"
    return gpu_slug(torch.cuda.get_device_name())


def gpu_slug(name: str) -> str:
    """The name of the results folder of a GPU that the driver calls so."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def cpu_name() -> str:
    """The CPU's model, on Linux, macOS and Windows; the architecture where it has no name."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        names = []
    if not names and platform.system() == "Darwin":
        names = [_output("sysctl", "-n", "machdep.cpu.brand_string") or ""]
    return next((name.strip() for name in names if name.strip()), platform.processor() or platform.machine())


def gpu() -> dict:
    """The current GPU's properties, and what its driver reports of it now."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    known = {
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "driver": None,
    }
    try:
        return known | _nvml()
    except Exception as error:  # no management library, or a virtual GPU that hides it: its absence is recorded
        return known | {"nvml_error": str(error)}


def links() -> dict:
    """The number of GPUs, whether each can address the others' memory, and this one's active NVLinks."""
    count = torch.cuda.device_count()
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    found = {"gpus": count, "peer_access": all(torch.cuda.can_device_access_peer(*pair) for pair in pairs)}
    try:
        return found | _nvlinks()
    except Exception as error:  # as in `gpu`
        return found | {"nvlinks": None, "nvml_error": str(error)}


def _nvlinks() -> dict:
    nvml, gpu = open_gpu()
    versions = []
    try:
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            with contextlib.suppress(nvml.NVMLError):  # a link that this GPU lacks
                if nvml.nvmlDeviceGetNvLinkState(gpu, link):
                    versions.append(nvml.nvmlDeviceGetNvLinkVersion(gpu, link))
    finally:
        nvml.nvmlShutdown()
    return {"nvlinks": len(versions), "nvlink_version": max(versions, default=None)}


def _nvml() -> dict:
    nvml, gpu = open_gpu()
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        return {
            "driver": driver.decode() if isinstance(driver, bytes) else driver,
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            "power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            "power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
            "temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
            "busy_percent": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        }
    finally:
        nvml.nvmlShutdown()


def _commit() -> tuple[str | None, bool | None, str]:
    """Returns the commit, whether the code differs from it, and in which files, or why that is not known (None).

    For a copy without its git, GEMM_LADDER_COMMIT and GEMM_LADDER_DIRTY (0 or 1) specify what it is a copy of.
    Raises UsageError for another value of the latter.
    """
    if commit := os.environ.get("GEMM_LADDER_COMMIT"):
        value = os.environ.get("GEMM_LADDER_DIRTY", "")
        if value not in _DIRTY:
            raise UsageError(f"GEMM_LADDER_DIRTY is {value!r}: give 1 where the code has local changes, 0 where not")
        return commit, _DIRTY[value], "" if value else "unknown: GEMM_LADDER_COMMIT came without GEMM_LADDER_DIRTY"
    commit = _output("git", "-C", str(_ROOT), "rev-parse", "HEAD")
    top = _output("git", "-C", str(_ROOT), "rev-parse", "--show-toplevel")
    if commit is None or top is None or Path(top).resolve() != _ROOT:  # installed within someone else's repository
        return None, None, "unknown: this copy has no git repository of its own, or git is not installed"
    # New data is not a change of the code that measured it.
    status = _output("git", "-C", str(_ROOT), "status", "--porcelain", "--", ".", ":!experiments/results")
    if status is None:
        return commit, None, "unknown: git status failed"
    files = [line.split(maxsplit=1)[1] for line in status.splitlines()]
    return (
        commit,
        bool(files),
        ", ".join(files[:_MAX_NAMED]) + (f" and {len(files) - _MAX_NAMED} more" * (len(files) > _MAX_NAMED)),
    )


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _nvcc_version() -> str | None:
    """As in 13.0.88."""
    try:
        release = re.search(r"\bV(\d[\d.]*)", version_of(str(find_toolkit() / "bin" / "nvcc")))
    except BuildError:
        return None
    return release and release[1]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
