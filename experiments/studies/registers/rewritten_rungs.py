"""The rungs of `registers`: each of CUDA's with a thread tile as it is, and as `cuda_kernels.rewritten` changes it.

Each is also run with so much shared memory that no second block fits beside it: the same machine code, half the warps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gemm_ref
from cuda_kernels.rewritten import BACK_AND_FORTH, FREED
from experiments.bench.machine_code import launch_of
from experiments.records.contenders import Contender, Gemm, contenders
from gemm_ref import Problem
from gemm_ref.sass import ports, tools
from gemm_ref.sass.listing import parse
from gemm_ref.sass.loop import main_trip
from gemm_ref.sass.occupancy import ARCHITECTURES, QUARTERS, WARP, occupancy, requested_bytes

RUNGS = range(7, 13)  # from the first thread tile to the last kernel that does not split K
FORMS = {  # name -> the rules
    "as it is": (),
    "freed": (FREED,),
    "back and forth": (BACK_AND_FORTH,),
    "both": (FREED, BACK_AND_FORTH),
}
ALONE_BYTES = 120 * 1024  # of a multiprocessor's 228 KiB: more than half, less what any of these rungs has besides


@dataclass(frozen=True)
class Machine:
    """What the machine code of a rewritten rung says."""

    registers: int  # of a thread
    warps: int  # of a scheduler, at a time
    predicted: float  # clocks of a scheduler for each FFMA of the main loop


@dataclass(frozen=True)
class Rewritten(Contender):
    """A rung in one of FORMS."""

    form: str = ""
    alone: bool = False  # no second block beside it
    machine: Machine | None = field(default=None, compare=False)

    @property
    def columns(self) -> Mapping[str, Any]:
        return {"form": self.form, **(vars(self.machine) if self.machine else {})}

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.form}" + (", alone" if self.alone else "")


def rewritten() -> Iterator[Rewritten]:
    """Every variant of RUNGS in each of FORMS, alone and not."""
    for rung in contenders():
        item = rung.kernel
        if item is None or item.dialect != "cuda" or item.stage.number not in RUNGS:
            continue
        for form, rules in FORMS.items():
            for alone in (False, True):
                build = None if alone else functools.partial(_build, item, rules)  # one library for both
                own = {"load": functools.partial(_load, item, rules, alone), "build": build}
                yield Rewritten(**vars(rung) | own, form=form, alone=alone)


def _load(item: gemm_ref.Implementation, rules: tuple[str, ...], alone: bool) -> Gemm:
    import cuda_kernels

    return cuda_kernels.gemm_rewritten(item, rules, ALONE_BYTES if alone else 0)


def _build(item: gemm_ref.Implementation, rules: tuple[str, ...], capability: tuple[int, int]) -> None:
    from cuda_kernels import source

    source.library(item, capability, rules)


def with_machine(rung: Rewritten, problem: Problem, arch: str) -> Rewritten:
    """The rung with what its machine code for one of `occupancy.ARCHITECTURES` says, without a GPU.

    Raises BuildError without a compiler or a disassembler.
    """
    from cuda_kernels import source

    sm = ARCHITECTURES[arch]
    cubin = source.cubin(rung.kernel, sm.capability, FORMS[rung.form]).read_bytes()
    (kernel,) = parse(tools.disassemble(cubin))
    use, launch, trip = tools.usage(cubin)[kernel.name], launch_of(rung, problem), main_trip(kernel)
    dynamic = max(launch.shared_bytes, ALONE_BYTES if rung.alone else 0)
    held = occupancy(sm, launch.threads, use.registers, requested_bytes(sm, use.shared_bytes, dynamic))
    warps = held.blocks * launch.threads // WARP // QUARTERS
    asked = ports.clocks(trip)
    return replace(rung, machine=Machine(use.registers, warps, asked.clocks / asked.ffma))
