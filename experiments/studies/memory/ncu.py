"""What a GPU's own counters say of the same accesses: one run of each kernel under Nsight Compute (`ncu`).

`count` starts `ncu` on this very module, which launches each kernel once, between warm-up runs that are not profiled.
Clocks are left alone. The metrics and what they stand for are METRICS.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import gemm_ref
from experiments.records.contenders import Contender, contenders
from experiments.records.store import short
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.call.validate import sms_of
from gemm_ref.inputs import meta_operands

_SECTORS, _COPIED = (f"{unit}_t_sectors_pipe_lsu_mem_global_op" for unit in ("l1tex_", "smsp__sass_l1tex"))
_WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
# (space, kind, measure) of `traffic.COUNTED` -> the metrics that add up to it; one after a minus is taken off: the
# counter of global loads has those of a cp.async in it.
METRICS: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("global", "load", "sectors"): (f"{_SECTORS}_ld.sum", f"-{_COPIED}_ldgsts.sum"),
    ("global", "store", "sectors"): (f"{_SECTORS}_st.sum",),
    ("global", "async load", "sectors"): (f"{_COPIED}_ldgsts.sum",),
    ("shared", "load", "wavefronts"): tuple(f"{_WAVEFRONTS}_{op}.sum" for op in ("ld", "ldsm")),
    ("shared", "store", "wavefronts"): tuple(f"{_WAVEFRONTS}_{op}.sum" for op in ("st", "stsm")),
    ("shared", "async store", "wavefronts"): (f"{_WAVEFRONTS}_ldgsts.sum",),
}
_REFUSED = "ERR_NVGPUCTRPERM"


class NoCounters(RuntimeError):
    """The counters cannot be read here; the message says why and what to do."""


def count(chosen: Sequence[Contender], problem: gemm_ref.Problem) -> dict[Contender, list[dict[tuple, float]]]:
    """For each contender, one mapping a kernel that a call launches: (space, kind, measure) -> what was counted.

    Raises NoCounters where there is no ncu, where the driver refuses it, or with what it says when it fails.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise NoCounters("ncu was not found: it comes with NVIDIA's CUDA toolkit (put its folder on PATH)")
    metrics = ",".join(dict.fromkeys(name.lstrip("-") for group in METRICS.values() for name in group))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        options = ["--clock-control", "none", "--profile-from-start", "off", "--print-units", "base"]
        options += ["--csv", "--page", "raw", "--metrics", metrics, "--log-file", str(log)]
        target = [sys.executable, "-m", "experiments.studies.memory.ncu", str(problem), *map(str, chosen)]
        done = subprocess.run([ncu, *options, *target], capture_output=True, text=True)
        said = log.read_text(encoding="utf-8") if log.exists() else ""
    if _REFUSED in said + done.stderr:
        raise NoCounters(
            f"the driver lets only root read the counters ({_REFUSED}): run as root, or let all users with the module "
            "option NVreg_RestrictProfilingToAdminUsers=0"
        )
    if done.returncode:
        raise NoCounters(f"ncu failed: {short(done.stderr or done.stdout or said)}")
    return assign(read(said), chosen, problem, sms_of(torch.device("cuda")))


def read(log: str) -> list[dict[tuple, float]]:
    """The counts of each kernel in ncu's CSV, in the order of their launches.

    Raises NoCounters where a metric is missing, as on a GPU that has none of that name.
    """
    table = [line for line in csv.reader(io.StringIO(log)) if line and not line[0].startswith("==")]
    if not table:
        return []
    head, _, *rows = table  # the second line holds units
    found = []
    for row in rows:
        values = dict(zip(head, row, strict=True))
        try:
            numbers = {name: _signed(name, values) for group in METRICS.values() for name in group}
        except (KeyError, ValueError) as error:
            raise NoCounters(f"ncu has no such counter for this GPU: {error}") from error
        found.append({what: sum(numbers[name] for name in group) for what, group in METRICS.items()})
    return found


def _signed(metric: str, values: dict[str, str]) -> float:
    number = float(values[metric.lstrip("-")].replace(",", ""))
    return -number if metric.startswith("-") else number


def assign(
    found: list[dict[tuple, float]], chosen: Sequence[Contender], problem: gemm_ref.Problem, sms: int
) -> dict[Contender, list[dict[tuple, float]]]:
    """Hand the kernels out to the contenders, called in this order on a GPU of `sms` multiprocessors.

    Raises NoCounters if they do not add up.
    """
    rest = iter(found)
    wanted = {contender: _kernels(contender, problem, sms) for contender in chosen}
    if sum(wanted.values()) != len(found):
        raise NoCounters(f"ncu counted {len(found)} kernels where {sum(wanted.values())} were launched")
    return {contender: [next(rest) for _ in range(number)] for contender, number in wanted.items()}


def _kernels(contender: Contender, problem: gemm_ref.Problem, sms: int) -> int:
    """How many kernels one call launches."""
    assert contender.kernel
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    plan = select_tile(Plan(contender.kernel, problem, sms, gpu=gpu), *meta_operands(problem, False)[:2])
    return 2 if plan.launch.then else 1


def _launch_each(problem: gemm_ref.Problem, names: Sequence[str]) -> None:
    """Call each kernel twice: once to compile it, and once for the profiler."""
    by_name = {str(contender): contender for contender in contenders()}
    a, b = gemm_ref.make_inputs(problem, device="cuda")
    c = a.new_empty(problem.m, problem.n)
    for fn in (by_name[name].load() for name in names):
        fn(a, b, out=c)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        fn(a, b, out=c)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    _launch_each(gemm_ref.Problem.parse(sys.argv[1]), sys.argv[2:])
