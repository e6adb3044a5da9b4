"""A CUDA driver without a GPU: each thread has its own current context, and none at first."""

from __future__ import annotations

import threading

INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


class Driver:
    """Stands for `gemm_ref.call.driver.library()`; `encoded` has the arguments of each tensor map."""

    def __init__(self) -> None:
        self.encoded: list[tuple] = []
        self._thread = threading.local()

    def has_context(self) -> bool:
        return getattr(self._thread, "context", None) is not None

    def cuCtxGetCurrent(self, context) -> int:
        context._obj.value = getattr(self._thread, "context", None)
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device: int) -> int:
        context._obj.value = 100 + device
        return 0

    def cuCtxSetCurrent(self, context) -> int:
        self._thread.context = context.value
        return 0

    def cuTensorMapEncodeTiled(self, *given) -> int:
        self.encoded.append(given)
        return 0 if self.has_context() else INVALID_CONTEXT
