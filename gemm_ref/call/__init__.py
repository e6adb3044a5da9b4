"""A call of `gemm`, in four steps of a file each: `validate` -> `choose` -> `layout` -> `execute`.

The first two decide everything and write it into a `Plan`, which is plain data; the last two carry it out. Most of
what a call costs its host is the same for two calls that differ in their numbers alone, so a plan on a GPU is cached.
For the reference GPU it is made at each call: seconds of work follow, and what it runs may be exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gemm_ref.epilogue import Extras
from gemm_ref.launch import REFERENCE_SMS, Launch
from gemm_ref.problem import Problem
from gemm_ref.registry import Implementation

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Plan:
    """What a call does, once for all calls whose tensors agree in everything but numbers and addresses."""

    implementation: Implementation
    problem: Problem  # as the kernel computes it: of C^T where `transpose`
    sms: int = REFERENCE_SMS  # multiprocessors of the device
    least_shared_bytes: int = 0  # that a block asks for on top of what the cubin says, needed or not
    gpu: str = ""  # the kind of GPU, as torch names it; empty where there is none
    blocks: int | None = None  # over which the tiles are scheduled; None where the grid follows from the sizes
    batch_invariant: bool = False  # whether the bits of a row must not depend on M
    early: bool = False  # whether the kernel may start while its operands are still being copied
    may_use_sgemm: bool = False  # whether fp32 arithmetic may compute an emulated compute type, where that is faster
    in_place_of: str = ""  # the emulated compute type that fp32 arithmetic computes; empty where it does not

    transpose: bool = False  # C^T = B^T @ A^T is computed: the TMA unit cannot store one column, but one row
    out_is_c: bool = False  # the kernel writes to `out`, and not to a new C that is copied there
    pad_c: bool = False  # the kernel writes to padded rows, which are copied to C
    copy_a: str = ""  # how A is copied first, one of `layout.COPIES`; empty where the kernel reads it as it is stored
    copy_b: str = ""
    split: bool = False  # the operands are split into parts, and those of OutOfRange raise it if `raise_on_range`
    raise_on_range: bool = False
    align_extras: bool = False  # bias and c are copied where the kernel cannot read them as they are stored
    multiply: bool = True  # False where K is 0 and the rung has no kernel for that
    c_shape: tuple[int, int] = (0, 0)
    c_dtype: torch.dtype | None = None
    spans: tuple[int, ...] = ()  # bytes from the first element of out and of what is read to the end of the last; or 0

    def with_blocks(self, blocks: int | None) -> Plan:
        """The plan with its tiles scheduled over so many blocks, and the kernel that adds what they share of a tile."""
        config = self.implementation.config
        together = blocks is not None and config.columns_added(self.problem, blocks) > 0
        return replace(self, blocks=blocks, implementation=replace(self.implementation, adds_together=together))

    @property
    def launch(self) -> Launch:
        """How the kernel is launched on the device."""
        config, problem = self.implementation.config, self.problem
        if self.blocks is None:
            item = self.implementation
            launch = item.stage.launch(
                problem.m, problem.n, problem.k, item.variant, dialect=item.dialect, sms=self.sms
            )
        else:
            launch = config.schedule(*config.sides(problem), problem.k, self.blocks, self.sms)
        return replace(launch, shared_bytes=max(launch.shared_bytes, self.least_shared_bytes), early=self.early)


# (a, b, c, extras): fills c (M, N) from operands, tensors or `Split`s, and from extras, as the plan has them laid out.
Launcher: TypeAlias = "Callable[[Any, Any, torch.Tensor, Extras], object]"
# The launcher for a plan, and for all calls whose matrices agree with these a, b and c in the key of `execute`'s cache:
# it may keep that of them, and nothing else. Of what torch allocates, every address is a multiple of TMA_BYTES.
Prepare: TypeAlias = "Callable[[Plan, Any, Any, torch.Tensor], Launcher]"
