"""What tests of `check` share: parts of CUDA files, and the codes of what a report says."""

from collections.abc import Iterable
from pathlib import Path

from experiments.check.command import check
from experiments.check.messages import Message
from experiments.check.report import Report
from experiments.check.subject import Options
from experiments.selection import make_request

SIGNATURE = "(const float* A, const float* B, float* C, int M, int N, int K)"
SIZE = ("19x21x5",)


def kernel_body(product: str, store="C[row * N + col] = sum", m="M", n="N", k="K") -> str:
    """The body of a kernel in which each thread sums `product` over k."""
    return f"""int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= {m} || col >= {n}) return;
  float sum = 0;
  for (int k = 0; k < {k}; ++k) sum += {product};
  {store};
"""


PRODUCT = kernel_body("A[row * K + k] * B[k * N + col]")
MULTIPLY = f"__global__ void multiply{SIGNATURE} {{ {PRODUCT} }}\n"


def codes(messages: Iterable[Message]) -> list:
    """The codes of sentences, in their order."""
    return [message.code for message in messages]


def values(messages: Iterable[Message], code) -> dict:
    """The numbers and names in the first sentence of this code."""
    return dict(next(message.values for message in messages if message.code is code))


def check_file(path: Path, sizes: Iterable[str] = (), gpu: str = "", **options) -> Report:
    """The report on a file, without a GPU; with a predicted time if `gpu` names one."""
    return check(path, Options(**options), make_request((), (), tuple(sizes), "", "cpu"), gpu)
