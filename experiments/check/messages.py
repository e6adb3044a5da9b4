"""The sentences of a report: each has a code, by which programs and tests know it, and its words stand here alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Note(StrEnum):
    """A decision that was taken for the user."""

    SCALARS_VARY = "{names} drawn anew for each size"
    CONSTANT_REDUCED = (
        "{name} is a constant of the source: it is {value} here, a multiple of the same tiles, which takes less time"
    )
    ONE_SIZE = "it takes one size, {size}, so it is checked for square matrices only"
    SIZE_FIXED = "{axis} is {size}, from the source or -D"
    ONE_ROW = "neither it nor its grid depends on M, so it is checked for one row: M is 1"
    ONE_COLUMN = (
        "neither it nor its grid depends on N: it multiplies A (M, K) by a vector of K elements (GEMV), and N is 1"
    )
    SIZES_ROUNDED = "{function} rounds sizes up ({steps}) and pads its matrices, so it is checked at multiples alone"
    PADDED = "{function} allocates matrices of more rows and columns than it multiplies: these hold zeros"
    C_ZEROED = "{function} fills C with zeros before it launches"
    LAUNCH_RECORDED = "launched as by {function} ({place}){assumed}{options}"
    GRID_COVERS = (
        "--grid {grid} covers a C of {sizes}, with a tile of {tile} for each block: no other is tried; for any sizes, "
        "write it in M and N"
    )
    LAUNCH_FROM_INDICES = "the {what} guessed from how the source computes a thread's element"
    LAUNCH_TRIED = "no host code launches it: {launch} is guessed, since it stores whole tiles of C"
    GRID_FROM_OWN_SIZES = "its program has sizes of its own, from which its grid is derived: {launch}"
    LAYOUT_FOUND = "right if {layout}, which is how it is checked{option}"
    HEADERS_REPLACED = "{headers} was not found: a stand-in without effect takes its place"
    HOST_CODE_LEFT_OUT = "host code that does not compile here was left out: {names}"
    STATEMENTS_LEFT_OUT = "statements that do not compile here were left out of {names}"
    REDUCED_BY_TENSOR_CORES = (
        "it is judged as {to}, to which tensor cores cut its fp32 operands (line {line}); --math fp32 judges it by that"
    )
    REDUCED_BY_CONVERSION = (
        "it is judged as {to}, to which it cuts its fp32 operands (line {line}), where what is past 65504 is infinity; "
        "--math fp32 judges it by that"
    )
    REDUCED_BY_TRITON = (
        "it is judged as {to}, to which its tl.dot cuts fp32 operands, as Triton does by default: for fp32 write "
        'input_precision="ieee"; --math fp32 judges it by that'
    )
    SUMS_IN_FP16 = "its sums are kept in fp16, which rounds those past 2048"
    COMPILER_WARNS = "nvcc warns at line {line}: {text}"
    CUDA_IN_PYTHON = "its CUDA is in a string of {file}, whose lines are named"
    FACTORS_ARE_ONES = "{names} hold ones, so it is not checked which of them an element takes"
    KERNEL_LAUNCHED_ALONE = "no function of the file takes its matrices: the kernel is launched by itself{square}"
    ALLOCATES_C = "it allocates C itself, so it is not checked whether it reads C"
    BATCH_OF_ONE = "it takes batches of matrices: it is given a batch of one"
    NEIGHBOURS_SKIPPED = "left out, since it is no text or may not be read: {files}"
    CAGE_INCOMPLETE = "its code ran with your rights, since --trust says so: this kernel has no {missing}"
    TUNER_REPLACED = "{kernel} has {values}, because its own tuner does not work here: -D sets others"
    COMPILED_WITHOUT_TMA = (
        "it makes tensor descriptors itself, which the reference GPU does not know: it is compiled for sm_89, where "
        "their copies are ordinary accesses"
    )
    FOREIGN_OPTIONS = "{names}: not known to Triton for NVIDIA GPUs, and left out"
    TILE_IS_MATRIX = "its tile is the whole matrix: it is given none of more than {limit} rows or columns"
    ELEMENTS_FROM_TEXT = "A and B are {elements}, by the types that the file names: --math sets another"
    RENAMED_IN_TRITON = "{old}, which Triton {version} no longer has, is taken for {new}"
    CODE_LEFT_OUT = "code outside of functions that was left out: {lines}, and what needs it"


class Why(StrEnum):
    """A reason why results are wrong."""

    FEWER_BITS = (
        "small integers give the right result and one-hot rows do not, although every sum there is exact in {math}: "
        "the kernel cuts its operands or sums to fewer bits. If that is intended, say so with --math"
    )
    SUM_ROUNDED = (
        "line {line} rounds the sum to {to} before it is stored in a C of fp32: sums of few bits are right, and others "
        "lose precision. Store the fp32 sum"
    )
    GRID_EXCHANGED = (
        "it is right with x and y of the grid exchanged: the kernel counts rows of C along the axis whose size the "
        "grid takes from the columns. Pass --grid '{grid}'"
    )
    NOTHING_WRITTEN = "no element of C is ever written"
    K_TAIL_DROPPED = (
        "the last K % {step} products of each sum are left out (here {missing} of {depth}): K / {step} rounds down. "
        "Walk cdiv(K, BLOCK_K) slices, and take zeros past the end"
    )
    FIRST_PRODUCTS_ONLY = "only the first {part} of {depth} products of each sum are added"
    C_TRANSPOSED = "C is stored transposed, as (N, M)"
    A_TRANSPOSED = "A is read as if it were stored transposed, as (K, M)"
    B_TRANSPOSED = "B is read as if it were stored transposed, as (N, K)"
    BOTH_TRANSPOSED = "A and B are read as if both were stored transposed, as (K, M) and (N, K)"
    OPERANDS_EXCHANGED = "A and B are exchanged: C is B @ A"
    WRONG_ROW_LENGTH = "{matrix} is read with {size} elements from row to row: a row of {matrix} has {right}"
    WRONG_STRIDE = (
        "line {line} goes from row to row of {matrix} by {name}: a row of {matrix} has {right} elements, not {size}"
    )
    SUM_NOT_ZEROED = "the sum does not start at zero: it is off by {offset:g} everywhere"
    TILES_TRANSPOSED = (
        "each tile of {rows} x {columns} of C is stored transposed: x and y are exchanged between the product and the "
        "store"
    )
    ELEMENTS_MOVED = (
        "every number of the product is in C, but in another place: the store computes other indices than the sum"
    )
    OTHER_ELEMENTS = (
        "each sum has K products, but of other elements of {matrices} than it should (with ones there it is right): "
        "look at the indices of its loads, and of its stores to shared memory and reads from there"
    )
    ALL_WRONG = "every element of C is wrong"
    PATTERN = "exactly {part} are wrong"
    WHOLE_ROWS = "whole rows of C are wrong: {indices}"
    WHOLE_COLUMNS = "whole columns of C are wrong: {indices}"
    NEEDS_ZEROED_C = (
        "C is right only if it holds zeros beforehand: the kernel adds to what is there, and newly allocated memory is "
        "undefined. Sum in a register, and store each element of C once"
    )
    ADDS_TO_C = (
        "the kernel adds to what C holds beforehand, which may be anything. Sum in a register, and store each element "
        "of C once"
    )
    MULTIPLIED = "C is {factor:.4g} times the product: is a sum counted {factor:.4g} times?"
    ORDER_OF_BLOCKS = (
        "a race of blocks: several write the same elements of C, and what is left depends on which is the last. Give "
        "each element to one block, or let all add to a C of zeros with atomics"
    )
    SEVERAL_TILES = (
        "it is right with as many blocks as tiles of C, and wrong with more tiles than blocks, here on a GPU with "
        "{multiprocessors} multiprocessors: a block leaves something of one tile for its next, such as a sum that is "
        "not set to zero again"
    )
    SCALARS_IGNORED = "it is right for {plain}, and not for another {wrong}: C must become {formula}"
    SQUARE_ONLY = (
        "it is right for square matrices only: M, N and K are mixed up somewhere, as a row's length. A row of A has K "
        "elements, of B and of C N"
    )
    EQUAL_ONLY = (
        "it is right where {one} = {other} and wrong where they differ: {one} is used where {other} belongs, as a "
        "row's length or along the grid. A row of A has K elements, of B and of C N"
    )
    IN_A_CUBE = "with M = N = K = {side}, {reason}"
    MANY_TILES = (
        "with whole tiles of {rows} x {columns} it is right while they are few, and wrong from {wrong} on: their "
        "number is what matters, as where a program finds its tile in groups or in a swizzle, or has several in turn"
    )
    HALF_PASSES = (
        "it is wrong for {axis} = {half} and right for {whole} and for {odd}: a test of what {axis} is a multiple of, "
        "such as {axis} % 2 == 0 where {axis} % BLOCK_{axis} == 0 is meant, lets {half} pass"
    )
    NEEDS_MULTIPLE = (
        "{axis} must be a multiple of {multiple}: with the other sizes whole, {smallest} is the smallest that fails"
    )
    NO_MULTIPLE = "not every {axis} works: with the other sizes whole, {smallest} is the smallest that fails"
    NEEDS_DEPTH = "K must be {least} or more: with {shallow} it goes wrong"


class Limit(StrEnum):
    """A restriction that is no fault at the sizes that were run."""

    POWERS_OF_TWO = "its host code takes powers of two, and refuses {problem}"
    FINITE_C = (
        "it is right only where C is finite: it multiplies C by 0 and adds that (NaN and infinity become NaN; BLAS "
        "does not read C then)"
    )
    FINITE_C_AT_BETA_0 = (
        "it is right only where C is finite: where beta is 0 it multiplies C by it all the same (NaN and infinity "
        "become NaN; BLAS does not read C then)"
    )
    FINITE_A = (
        "it is right only where A is finite: past the end of a row it multiplies elements of the next one by zeros, "
        "and infinity times 0 is NaN"
    )
    NOT_PROMISED = "{kind}, at line {line}: {text}"
    UNUSED_UNWRITTEN_READ = "memory that nothing wrote is read, and C does not depend on what it holds ({places})"
    OFFSETS_IN_32_BITS = (
        "offsets into {matrix} are computed in 32 bits ({file}:{line}), so the kernel fails once {matrix} has 2^{bits} "
        "elements: write (size_t)row * N + col"
    )
    NARROW_OFFSETS = (
        "offsets into {matrix} are computed in {width} bits ({file}:{line}), so the kernel fails once {matrix} has "
        "2^{bits} elements: write row.to(tl.int64) * stride"
    )
    NARROW_INDEX = (
        "an index into {matrix} is cut to {width} bits ({file}:{line}), so the kernel fails once a side of {matrix} "
        "has 2^{bits} elements: leave it in 32"
    )


class Advice(StrEnum):
    """A way to ask less of the hardware."""

    NOT_COALESCED = (
        "not coalesced: let neighbouring threads (threadIdx.x) touch neighbouring elements of a row: {places}"
    )
    BANK_CONFLICTS = (
        "bank conflicts, lanes of a warp asking one bank for different words: pad the rows of the array, store it "
        "transposed, or let lanes read neighbouring words: {places}"
    )
    REGISTER_BANKS = (
        "multiply-adds wait for registers, of which one with an even and one with an odd number is read per clock "
        "(docs/compilers.md): let neighbouring products share an operand, back and forth along the rows of a thread's "
        "tile: {places}"
    )


class Unchecked(StrEnum):
    MACHINE_CODE = "the machine code: {reason}"
    MANY_TILES = (
        "more than {tiles} rows of tiles, past which blocks may take tiles in another order, or several each: it takes "
        "too long here; --size checks one such size"
    )
    OUT_OF_TIME = (
        "{seconds} s of processor time were used up: not tried were {sizes}, more reasons for what is wrong, and what "
        "each line costs; --size tries one size without a limit"
    )
    PLACE_OF_WRONG_KERNEL = "its place on the ladder: a wrong kernel's time says nothing"
    PLACE = "its place on the ladder: {reason}"
    TIMES = "whether these times hold: cuBLAS against itself was not SAME, so the GPU was not quiet"


@dataclass(frozen=True)
class Message:
    """One sentence: its code, and the numbers and names in it."""

    code: Note | Why | Limit | Advice | Unchecked
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.code.format_map(self.values)

    def data(self) -> dict[str, object]:
        """The sentence for programs: its code, numbers and names."""
        values = {name: x if isinstance(x, int | float | str) else str(x) for name, x in self.values.items()}
        return {"code": self.code.name, **values}


def message(code: Note | Why | Limit | Advice | Unchecked, **values: object) -> Message:
    return Message(code, values)
