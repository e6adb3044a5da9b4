"""Triton programs that hand on what they have stored, by the last ticket or by a flag, right and wrong."""

from __future__ import annotations

import triton
import triton.language as tl

SIZE = 256  # elements that a program stores


@triton.jit
def last_adds(x, parts, tickets, c, SIZE: tl.constexpr, SEM: tl.constexpr):
    """c[SIZE] = the sum of x[programs, SIZE] over programs: who takes the last ticket adds."""
    i = tl.arange(0, SIZE)
    tl.store(parts + tl.program_id(0) * SIZE + i, tl.load(x + tl.program_id(0) * SIZE + i))
    tl.debug_barrier()
    if tl.atomic_add(tickets, 1, sem=SEM) == tl.num_programs(0) - 1:
        tl.store(tickets, 0)
        tl.debug_barrier()
        total = tl.zeros((SIZE,), tl.float32)
        for program in range(tl.num_programs(0)):
            total += tl.load(parts + program * SIZE + (SIZE - 1 - i))  # another thread's
        tl.store(c + i, total)


@triton.jit
def owner_waits(x, parts, flags, c, SIZE: tl.constexpr, GIVE: tl.constexpr, TAKE: tl.constexpr):
    """The same, where the last program adds, and waits for each of the others."""
    i, program = tl.arange(0, SIZE), tl.program_id(0)
    if program < tl.num_programs(0) - 1:
        tl.store(parts + program * SIZE + i, tl.load(x + program * SIZE + i))
        tl.debug_barrier()
        tl.atomic_xchg(flags + program, 1, sem=GIVE)
    else:
        total = tl.load(x + program * SIZE + (SIZE - 1 - i))
        for other in range(program):
            while tl.atomic_add(flags + other, 0, sem=TAKE) == 0:
                pass
            tl.debug_barrier()
            total += tl.load(parts + other * SIZE + (SIZE - 1 - i))
            tl.atomic_xchg(flags + other, 0, sem="relaxed")
        tl.store(c + i, total)
