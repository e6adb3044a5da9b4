"""What a trace cannot show, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from experiments.explore.traces.observe import Watcher
from experiments.explore.traces.record import NOWHERE, Operation

_ALWAYS = (
    "Accesses are those of the PTX, as written. The machine code may join neighbouring ones into one wide access.",
    "The order is the reference GPU's, which runs the threads of a block together. A GPU may run its warps in another.",
)
_BY_OPCODE = {
    "ldmatrix": "A lane gives ldmatrix the address of a row; which lane gets which part of that row is not shown.",
    "stmatrix": "A lane gives stmatrix the address of a row; which lane gives which part of that row is not shown.",
    "wmma": "Which lane holds which element of a WMMA fragment is not shown, but in C.",
    "mma": "The products and sums inside mma.sync, and the registers that they are in, are not shown.",
    "wgmma": "wgmma reads tiles as pieces of 16 bytes, without lanes: it has no wavefronts here, and the sums that it "
    "keeps in registers are not shown until they are stored.",
}
_BULK = "The TMA unit copies boxes without lanes, so these copies have no sectors and no wavefronts."


def describe_limits(
    watched: Watcher, owners: np.ndarray, operations: Iterable[Operation], parts: int
) -> tuple[str, ...]:
    """What is missing from a trace of these steps, in which the tile has these owners, and A and B so many parts."""
    threads = watched.launches[0][1].threads
    opcodes = {seen.instruction.parts[0] for seen in watched.steps}
    found = [*_ALWAYS]
    found += [sentence for opcode, sentence in _BY_OPCODE.items() if opcode in opcodes]
    if any(seen.kind == "bulk load" for seen in watched.steps):
        found.append(_BULK)
    copied = [seen.ids for seen in watched.steps if seen.kind == "async store" and seen.ids is not None]
    if any((ids == NOWHERE).all() for ids in copied):
        found.append("K is short here: a copy that is started past its end fills shared memory with zeros.")
    if files := sorted({operation.place.rpartition(":")[0] for operation in operations if not operation.line}):
        found.append(f"Its compiler does not say which line of the rung calls the functions of {', '.join(files)}.")
    if parts > 1:
        found.append("A and B are their parts, one below the other. The kernel that splits them is not shown.")
    if len(watched.launches) > 1:
        found.append("The steps are those of the first kernel. The second, which adds the partial sums, is not shown.")
    if not owners.size:
        found.append("The block that is shown stores no element of C.")
    elif unknown := int((owners == threads).sum()):
        found.append(f"Which threads own {unknown} of the {owners.size} elements of the tile is not known.")
    return tuple(found)
