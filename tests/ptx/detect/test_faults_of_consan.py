"""The kinds of fault in the tests of ConSan, Triton's sanitizer of Hopper's units, each beside its right twin.

The kernels are our own, in PTX, of one warp for each part that warp specialisation would give to a partition. ConSan
runs on the GPU; here a detector names the fault, or the reference GPU stops. Kinds of Blackwell's units (tcgen05,
tensor memory) are not here. To initialise an mbarrier again for the same count is no fault here: it changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.detect.finding import EARLY, RACE
from tests.ptx.detect.test_hopper_detectors import of, of_two_blocks
from tests.ptx.units.test_bulk_copies import HEAD, LOAD, STORE
from tests.ptx.units.test_wgmma import COMMIT, FENCE, WAIT_GROUP, descriptor, instruction, setting

STOPS = "stops"  # in place of the kind of a finding: the run ends with a fault


class Twins(NamedTuple):
    """The text of a right kernel, and of one with a fault."""

    right: str
    wrong: str


def join(*parts: str | Twins) -> Twins:
    twins = [part if isinstance(part, Twins) else Twins(part, part) for part in parts]
    return Twins("".join(twin.right for twin in twins), "".join(twin.wrong for twin in twins))


def right(text: str) -> Twins:
    """What the kernel with the fault lacks."""
    return Twins(text, "")


def wrong(text: str) -> Twins:
    return Twins("", text)


def in_parts(*parts: str | Twins, threads: int = 32) -> Twins:
    """Each part is run by `threads` threads, the last by all others."""
    jumps = [f"setp.ge.u32 %p7, %r0, {threads * i}; @%p7 bra PART{i};\n" for i in range(len(parts) - 1, 0, -1)]
    labelled = [join(f"PART{i}:\n", part, "bra DONE;\n") for i, part in enumerate(parts)]
    return join(*jumps, *labelled, "DONE: mov.u32 %r7, 0;\n")


def second_mbarrier(count: int = 1) -> str:
    return f"@%p1 mbarrier.init.shared::cta.b64 [%r1+8], {count}; bar.sync 0;\n"


def wait(slot: int = 0, parity: int = 0) -> str:
    test = f"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+{8 * slot}], {parity}"
    return f"{{ W: {test}; @!%p2 bra W; }}\n"


def arrive(slot: int = 0, count: int = 1) -> str:
    """By the first lane of the warp."""
    return f"@%p8 mbarrier.arrive.shared::cta.b64 _, [%r1+{8 * slot}], {count};\n"


def expect(size: int, slot: int = 0) -> str:
    return f"@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{8 * slot}], {size};\n"


def load(slot: int = 0, at: int = 0) -> str:
    """256 bytes by the TMA unit."""
    return f"@%p8 {LOAD.format(rank=2, space='cta', tile='')} [%r2+{at}], [%rd1, {{0, 0}}], [%r1+{8 * slot}];\n"


def copy(at: int) -> str:
    return f"@%p8 cp.async.ca.shared.global [%r2+{at}], [%rd0], 4; cp.async.commit_group;\n"


def wait_copies(pending: int) -> str:
    return f"cp.async.wait_group {pending};\n"


def multiply(start: int) -> str:
    operands = (str(descriptor(start, leading, 128, 0)) for leading in (1024, 128))
    return FENCE + instruction("bf16.bf16", 8, *operands, "1, 1, 0, 0") + COMMIT


LEADERS = "and.b32 %r9, %r0, 31; setp.eq.u32 %p8, %r9, 0;\n"
BLOCK, PROXY_FENCE = "bar.sync 0;\n", "fence.proxy.async;\n"
READ, WRITE = "@%p8 ld.shared.u32 %r5, [%r2+4];\n", "@%p8 st.shared.u32 [%r2+4], 7;\n"
READ_NEXT, WRITE_NEXT = (text.replace("+4", "+260") for text in (READ, WRITE))
TWO_COPIES, ARRIVE_128 = copy(4) + copy(260), "mbarrier.arrive.shared::cta.b64 _, [%r1+8];\n"
STORE_TILE = "@%p1 " + STORE.format(rank=2, tile="") + " [%rd1, {0, 0}], [%r2]; cp.async.bulk.commit_group;\n"
STORE_READ = "cp.async.bulk.wait_group.read 0;\n"
ROW = "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r0;\n" + PROXY_FENCE + BLOCK
OPERANDS = "setp.lt.u32 %p6, %r0, 128; shl.b32 %r4, %r0, 4; add.u32 %r4, %r4, %r2; .reg .f32 %d<4>;\n" + setting(4)
OPERANDS += "".join(f"@%p6 st.shared.v4.u32 [%r4+{at}], {{1, 1, 1, 1}};\n" for at in (0, 2048))
FENCED = OPERANDS + PROXY_FENCE + BLOCK
TWO_PRODUCTS = multiply(1024) + multiply(3072)
OVERWRITE, OVERWRITE_NEXT = (f"@%p8 st.shared.u32 [%r2+{at}], 7;\n" for at in (0, 2048))
INVALIDATE = "@%p1 mbarrier.inval.shared::cta.b64 [%r1+8];\n"
USES = {"wait": wait(1, 1), "arrive": arrive(1), "expect": expect(256, 1), "invalidate": INVALIDATE}

# Kind -> threads, the twins, and what is told of the wrong one.
KINDS: dict[str, tuple[int, Twins, str]] = {
    "TMA: read before the wait": (32, join(expect(256), load(), right(wait()), READ, wrong(wait())), EARLY),
    "TMA: two boxes, one mbarrier": (
        32,
        join(expect(512), load(), load(at=256), right(wait()), READ, READ_NEXT, wrong(wait())),
        EARLY,
    ),
    "TMA: the other mbarrier waited for": (
        32,
        join(
            second_mbarrier(),
            *(expect(256), load(), expect(256, 1), load(1, 256), wait(1)),
            *(Twins(READ_NEXT, READ), wait()),
        ),
        EARLY,
    ),
    "TMA: a slot of a ring is filled before it was released": (
        64,
        join(
            second_mbarrier(),
            in_parts(
                join(expect(256), load(), wait(), right(wait(1)), expect(256), load(), wait(0, 1)),
                wait() + READ + arrive(1),
            ),
        ),
        STOPS,
    ),
    "TMA: more bytes expected than come": (32, join(Twins(expect(256), expect(272)), load(), wait()), STOPS),
    "TMA: fewer bytes expected than come": (32, join(Twins(expect(256), expect(240)), load(), wait()), STOPS),
    "TMA: a tile is overwritten while it is stored": (
        64,
        join(ROW, STORE_TILE, right(STORE_READ), BLOCK, WRITE.replace("p8", "p1"), wrong(STORE_READ)),
        RACE,
    ),
    "cp.async: the last group is read before its wait": (
        32,
        join(TWO_COPIES, wait_copies(1), Twins(READ, READ_NEXT), wait_copies(0)),
        EARLY,
    ),
    "wgmma: an operand is overwritten before the wait": (
        128,
        join(FENCED, multiply(1024), right(WAIT_GROUP.format(0)), BLOCK, OVERWRITE, wrong(WAIT_GROUP.format(0))),
        RACE,
    ),
    "wgmma: an operand of the last product, which is not waited for": (
        128,
        join(
            *(FENCED, TWO_PRODUCTS, WAIT_GROUP.format(1), BLOCK),
            *(Twins(OVERWRITE, OVERWRITE_NEXT), WAIT_GROUP.format(0)),
        ),
        RACE,
    ),
    "wgmma: the same, by another warp": (
        160,
        join(
            *(second_mbarrier(128), FENCED),
            in_parts(
                TWO_PRODUCTS + WAIT_GROUP.format(1) + ARRIVE_128 + WAIT_GROUP.format(0),
                join(wait(1), Twins(OVERWRITE, OVERWRITE_NEXT)),
                threads=128,
            ),
        ),
        RACE,
    ),
    "wgmma: stores without the fence": (
        128,
        join(OPERANDS, right(PROXY_FENCE), BLOCK, multiply(1024), WAIT_GROUP.format(0)),
        RACE,
    ),
    "warps: a consumer does not wait": (
        64,
        join(WRITE, BLOCK, in_parts(WRITE + arrive(), join(right(wait()), READ))),
        RACE,
    ),
    "warps: a producer does not wait": (
        64,
        join(WRITE, BLOCK, in_parts(join(right(wait()), WRITE), READ + arrive())),
        RACE,
    ),
    "warps: one of two consumers is not waited for": (
        96,
        join(
            *(WRITE, second_mbarrier()),
            in_parts(join(wait(), right(wait(1)), WRITE), READ + arrive(), READ + arrive(1)),
        ),
        RACE,
    ),
    "warps: one arrival of two consumers": (
        96,
        join(
            *(WRITE, Twins(second_mbarrier(2), second_mbarrier(1))),
            in_parts(wait(1) + WRITE, READ + arrive(1), join(READ, right(arrive(1)))),
        ),
        RACE,
    ),
    "warps: one of two producers is not waited for": (
        96,
        join(
            *(WRITE_NEXT, second_mbarrier()),
            in_parts(WRITE + arrive(), WRITE_NEXT + arrive(1), join(wait(), right(wait(1)), READ_NEXT)),
        ),
        RACE,
    ),
    "warps: read after the arrival": (
        64,
        join(
            *(WRITE, WRITE_NEXT, BLOCK),
            in_parts(wait() + WRITE_NEXT, join(READ, right(READ_NEXT), arrive(), wrong(READ_NEXT))),
        ),
        RACE,
    ),
    "warps: a copy that another warp's wait leaves out": (
        64,
        join(
            second_mbarrier(),
            in_parts(
                TWO_COPIES + wait_copies(1) + arrive(1) + wait_copies(0),
                join(wait(1), Twins(READ, READ_NEXT)),
            ),
        ),
        RACE,
    ),
    "deadlock: two warps wait, nobody arrives": (64, in_parts(join(right(arrive()), wait()), wait()), STOPS),
    "deadlock: two arrivals for one": (32, join(arrive(), wrong(arrive()), wait()), STOPS),
    "deadlock: one arrival for two": (
        64,
        join(second_mbarrier(2), in_parts(arrive(1) + wait(1), join(right(arrive(1)), wait(1)))),
        STOPS,
    ),
    "mbarrier: more arrivals than are pending": (32, Twins(arrive(), arrive(count=2)), STOPS),
    "mbarrier: initialised again": (
        32,
        join(second_mbarrier(), right(INVALIDATE), second_mbarrier(2)),
        STOPS,
    ),
    **{
        f"mbarrier: {name} without init": (32, join(right(second_mbarrier()), use), STOPS) for name, use in USES.items()
    },
    **{
        f"mbarrier: {name} after it was invalidated": (32, join(second_mbarrier(), wrong(INVALIDATE), use), STOPS)
        for name, use in USES.items()
    },
    "alias: a buffer over one that is still read": (
        64,
        join(WRITE, BLOCK, in_parts(READ, join(WRITE_NEXT, wrong(WRITE)))),
        RACE,
    ),
    "alias: a buffer over one that is still copied": (
        32,
        join(copy(4), right(wait_copies(0)), WRITE, wrong(wait_copies(0))),
        RACE,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_consan_tells_is_told(kind):
    threads, twins, told = KINDS[kind]
    assert of(LEADERS + twins.right, threads) == []
    if told == STOPS:
        with pytest.raises(ptx.PtxError, match="mbarrier|deadlock"):
            of(LEADERS + twins.wrong, threads)
    else:
        assert told in {found for found, _ in of(LEADERS + twins.wrong, threads)}


@pytest.mark.parametrize("body", [in_parts(wait(0, 1), wait(0, 1)), in_parts(expect(256) + load() + wait(), wait())])
def test_waits_that_end_are_no_deadlock(body):
    """For the phase before the first, and for bytes that the TMA unit brings."""
    assert of(LEADERS + body.right) == []


@pytest.mark.parametrize(("access", "told"), [(READ, EARLY), (WRITE, RACE)], ids=["read", "overwritten"])
def test_what_a_block_multicasts_is_waited_for_in_each(access, told):
    """Block 0 of a cluster sends a tile to both."""
    copy_to_both = LOAD.format(rank=2, space="cluster", tile="") + ".multicast::cluster"
    sends = f"@%p5 {copy_to_both} [%r2], [%rd1, {{0, 0}}], [%r1], %h1;\n"
    meet = "barrier.cluster.arrive; barrier.cluster.wait;\n"
    rank = "mov.u32 %r10, %cluster_ctarank; setp.eq.and.u32 %p5, %r10, 0, %p1; mov.u16 %h1, 3;\n"
    twins = join(HEAD, LEADERS, rank, expect(256), meet, sends, right(wait()), access, wrong(wait()), meet)
    args = [ptx.TensorMap(torch.ones(8, 8), (8, 8)), torch.zeros(4)]
    assert of_two_blocks(twins.right, args) == []
    assert told in {found for found, _ in of_two_blocks(twins.wrong, args)}
