"""Tensor maps: what the TMA unit is told about a matrix (CUDA driver API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

import ctypes
import functools

import torch

from gemm_ref.call import Call
from gemm_ref.operands import TMA_BYTES
from gemm_ref.stage import Box, cdiv

MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
# CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion of cuda.h
_TYPES = {torch.float8_e4m3fn: 0, torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
_SWIZZLE_128, _PROMOTE_256 = 3, 3


def encode(call: Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> ctypes.Array:
    """The maps of a, b and c, one after another; those of matrices that the rung's TMA does not move stay zero.

    a (M, K), b (K, N), c (M, N) are on a GPU, with rows as `operands.with_tma_rows` makes them.
    Raises RuntimeError with the driver's error where it refuses one.
    """
    stage, layout = call.implementation.stage, call.problem.b_layout
    boxes = stage.boxes(call.implementation.config, call.problem.math, layout)
    matrices = {"A": a, "B": b if layout == "kn" else b.t(), "C": c}
    texts = [
        _encode(x.data_ptr(), x.dtype, *x.shape, row_bytes(x), boxes[name]) if name in stage.tma else bytes(MAP_BYTES)
        for name, x in matrices.items()
    ]
    return _aligned(b"".join(texts))


def row_bytes(x: torch.Tensor) -> int:
    """Bytes from a row of x to the next; torch says what it likes where there is one row."""
    rows, columns = x.shape
    return x.stride(0) * x.itemsize if rows > 1 else cdiv(columns * x.itemsize, TMA_BYTES) * TMA_BYTES


@functools.lru_cache(maxsize=1024)
def _encode(address: int, dtype: torch.dtype, rows: int, columns: int, step: int, box: Box) -> bytes:
    whole = _aligned(bytes(MAP_BYTES))
    error = _encoder()(
        ctypes.byref(whole),
        _TYPES[dtype],
        2,  # dimensions, the innermost first
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(step),
        (ctypes.c_uint32 * 2)(box.columns, box.rows),
        (ctypes.c_uint32 * 2)(1, 1),
        0,  # not interleaved
        _SWIZZLE_128,
        _PROMOTE_256,
        0,  # zeros outside the matrix
    )
    if error:
        raise RuntimeError(
            f"the CUDA driver took no tensor map of {rows} x {columns} {dtype}, {step} bytes a row, box {box}: "
            f"CUresult {error}"
        )
    return bytes(whole)


def _aligned(text: bytes) -> ctypes.Array:
    """The bytes in memory that starts where a CUtensorMap may."""
    room = ctypes.create_string_buffer(len(text) + MAP_ALIGNMENT)
    skip = -ctypes.addressof(room) % MAP_ALIGNMENT
    array = (ctypes.c_char * len(text)).from_buffer(room, skip)
    array[:] = text
    return array


@functools.cache
def _encoder():
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
