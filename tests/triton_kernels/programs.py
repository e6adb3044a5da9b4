"""Triton programs that hand on what they have stored, by the last ticket or by a flag, right and wrong; and sums."""

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


@triton.jit
def promoting(a_ptr, b_ptr, c_ptr, steps, AS_FMA: tl.constexpr):
    """c[64, 64] = the sum of steps products of 64 x 64 x 64, each added to the others outside the tensor core."""
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    acc = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + step * 4096 + at)
        b = tl.load(b_ptr + step * 4096 + at)
        if AS_FMA:
            acc = tl.fma(tl.dot(a, b), 1.0, acc)
        else:
            acc += tl.dot(a, b)
    tl.store(c_ptr + at, acc)
