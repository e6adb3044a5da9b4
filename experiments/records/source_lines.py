"""How much code each kernel takes to write: lines and tokens of its own file, and of the files that it shares.

Own: the rung's whole file, which holds the kernel and its call to a launcher. It serves all variants and math modes of
the rung. Shared: the files of the same package that it includes or imports, directly or by way of others, where they
hold code of kernels or are another rung's; a file is counted whole, whatever part of it a kernel uses. No dialect
counts what checks tensors, computes grids and tensor maps and launches (`launch.cuh`, `launcher.py`, `descriptors.py`
and the like), or the tile sizes, which come from the registry.

A line counts if a token begins or continues on it. Comments, white space and strings that stand alone as a statement
(docstrings) are no tokens. A token is a name, a number, a whole string, a bracket, a comma, a semicolon, or a run of
other signs such as `+=`: the same in both languages.
"""

from __future__ import annotations

import ast
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, String

from gemm_ref import DIALECTS, STAGES, get_stage

ROOT = Path(__file__).resolve().parents[2]
_TOKEN = re.compile(r'"+|\d(?:[eE][+-]|[\w.])*|\w+|[(){}\[\],;]|[^\w\s(){}\[\],;"\\]+')


@dataclass(frozen=True)
class Code:
    """The amount of code in a text."""

    lines: int
    tokens: int


@dataclass(frozen=True)
class Written:
    """The code of one rung in one dialect: its file's, and that of the files it shares."""

    own_lines: int
    own_tokens: int
    shared_lines: int
    shared_tokens: int

    @property
    def lines(self) -> int:
        """The lines of its own file and of those that it shares."""
        return self.own_lines + self.shared_lines


@functools.cache
def lines_of(stage: str, dialect: str) -> Written:
    """Returns the lines and tokens of a rung, by id or number, in a dialect; nothing is compiled or run.

    Raises ValueError for a stage that does not exist, or that is not written in the dialect.
    """
    own = _count_file(file_of(stage, dialect))
    shared = [_count_file(path) for path in shared_files(stage, dialect)]
    return Written(own.lines, own.tokens, sum(code.lines for code in shared), sum(code.tokens for code in shared))


def file_of(stage: str, dialect: str) -> Path:
    """Returns the path of the rung's file. Raises ValueError as `lines_of` does."""
    rung = get_stage(stage)
    if dialect not in rung.dialects:
        raise ValueError(f"{rung.id} is not written in {dialect!r}: there it is in {', '.join(rung.dialects)}")
    return ROOT / DIALECTS[dialect].file_of(rung.id)


def shared_files(stage: str, dialect: str) -> list[Path]:
    """Returns the files with kernel code that the rung's file uses, directly or not, ordered by name."""
    own = file_of(stage, dialect)
    reached, waiting = {own}, [own]
    while waiting:
        new = set(_LANGUAGES[own.suffix].used_by(waiting.pop())) - reached
        reached |= new
        waiting += new
    return sorted(path for path in reached - {own} if path.stem in STAGES or _holds_kernel_code(path))


def kernel_file(stage: str, dialect: str) -> str:
    """Returns the file that defines the rung's kernel, from the root: its own, or that of the rung that it imports."""
    own = file_of(stage, dialect)
    files = (own, *shared_files(stage, dialect))
    found = (path for path in files if path.stem in STAGES and _holds_kernel_code(path))
    return next(found, own).relative_to(ROOT).as_posix()


def _holds_kernel_code(path: Path) -> bool:
    return _LANGUAGES[path.suffix].kernel_code.search(path.read_text(encoding="utf-8")) is not None


def count(text: str, suffix: str) -> Code:
    """Returns the lines and tokens of a text in the language that the file's suffix stands for: C++ or Python.

    Raises SyntaxError for Python that cannot be parsed.
    """
    code = _without_remarks(text, suffix)
    starts = _line_starts(text)
    lines: set[int] = set()
    tokens = [match.span() for match in _TOKEN.finditer(code)]
    for begin, end in tokens:
        lines.update(range(bisect_right(starts, begin), bisect_right(starts, end - 1) + 1))
    return Code(len(lines), len(tokens))


@functools.cache
def _count_file(path: Path) -> Code:
    return count(path.read_text(encoding="utf-8"), path.suffix)


def _without_remarks(text: str, suffix: str) -> str:
    """The text with blanks for comments and docstrings, and with quotation marks alone for each string."""
    language = _LANGUAGES[suffix]
    remarks = language.remarks(text)
    code = []
    for start, kind, value in language.lexer.get_tokens_unprocessed(text):
        is_comment = kind in Comment and kind not in Comment.Preproc and kind not in Comment.PreprocFile
        if is_comment or any(begin <= start < end for begin, end in remarks):
            code.append(" " * len(value))
        else:
            code.append('"' * len(value) if kind in String or kind in Comment.PreprocFile else value)
    return "".join(code)


def _included(path: Path) -> Iterator[Path]:
    for name in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.M):
        yield ROOT / "cuda_kernels" / "include" / name


def _imported(path: Path) -> Iterator[Path]:
    """The files of the package of `path` that it imports."""
    package = path.relative_to(ROOT).parts[0]
    for name, members in _imports_from(package, path.read_text(encoding="utf-8")):
        module = ROOT.joinpath(*name.split("."))
        candidates = (module / member for member in members)
        yield from {file for each in (module, *candidates) if (file := each.with_suffix(".py")).is_file()}


@functools.lru_cache(maxsize=512)
def _imports_from(package: str, text: str) -> list[tuple[str, list[str]]]:
    """(module, the names that are imported from it) of each import of a Python text from the package."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    found = [(node.module or "", [alias.name for alias in node.names]) for node in nodes]
    return [(module, names) for module, names in found if module.split(".")[0] == package]


def _line_starts(text: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in text.split("\n"))]


def _standing_alone(text: str) -> list[tuple[int, int]]:
    """Where each string that is a whole statement of a Python text begins and ends, in characters."""
    lines, starts = text.split("\n"), _line_starts(text)

    def place(line: int, column: int) -> int:
        """Of a line from 1 on, and a column in bytes of UTF-8."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    return [
        (place(node.lineno, node.col_offset), place(node.end_lineno or node.lineno, node.end_col_offset or 0))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


@dataclass(frozen=True)
class _Language:
    lexer: Lexer
    used_by: Callable[[Path], Iterator[Path]]  # the files that a file names as parts of itself
    kernel_code: re.Pattern[str]  # occurs in a file that holds code of kernels
    remarks: Callable[[str], list[tuple[int, int]]] = lambda text: []  # besides comments: where they begin and end


_CPP = _Language(CppLexer(), _included, re.compile(r"\b__(device|global)__\b"))
_LANGUAGES = {
    ".cu": _CPP,
    ".cuh": _CPP,
    ".py": _Language(
        PythonLexer(), _imported, re.compile(r"^@(triton|gluon)\.(jit|constexpr_function)\b", re.M), _standing_alone
    ),
}
