"""What is left of preprocessed headers: every declaration that the rest may name."""

from __future__ import annotations

import pytest

from cuda_kernels.trim import trim

USED = [  # a word that a kernel uses, and a declaration that it needs
    ("f", "static __inline__ __attribute__((device)) float f(float x) { return x; }"),
    ("f", "template <typename T, typename = decltype(T())> typename T::type f(T x) noexcept(true);"),
    ("f", "template <> float f<int>(int x) { return x; }"),
    ("f", "extern struct Other f(int (*g)(int)) __attribute__((nothrow));"),
    ("X", "struct __attribute__((aligned(4))) X { float x; X() = default; };"),
    ("X", "template <int N> struct X<f(N)> : public Y<int> { };"),
    ("X", "typedef struct { int a; } X;"),
    ("X", "typedef float (*X)(float);"),
    ("X", "using X = Y<int>;"),
    ("X", "using ::std::X;"),
    ("X", "X operator+(const X& a, const X& b) { return a; }"),
    ("B", "enum X { A, B = 2 };"),
    ("x", "extern const float x[3];"),
    ("x", "template <typename T> inline constexpr bool x<T, T> = true;"),
    ("x", "static const Y x = Y(2);"),
]


@pytest.mark.parametrize(("word", "declaration"), USED)
def test_what_declares_a_word_is_kept(word, declaration):
    text = f'# 7 "a.h" 1 3\nint before;\n{declaration}\nint after(int);\n'
    assert trim(text, {word})[0] == f'# 8 "a.h" 3\n{declaration}\n'
    rest, left_out = trim(text, {"other"})
    assert rest == "" and {word, "before", "after"} <= left_out


def test_what_is_kept_needs_more():
    text = '# 1 "a.h"\nint unused();\nint h();\nnamespace n {\nint g() { return h(); }\n}\nint f() { return n::g(); }\n'
    kept, left_out = trim(text, {"f"})
    assert kept.split("\n")[1::2] == [line for line in text.split("\n")[2:] if line] and left_out == {"unused"}


def test_pragmas_and_namespaces_are_kept():
    text = '# 1 "a.h"\n#pragma push\nextern "C" {\nint unused();\n}\nusing namespace n;\n#pragma pop\n'
    assert trim(text, set())[0].split("\n")[1::2] == [line for line in text.split("\n")[1:] if line[:3] != "int"][:-1]
