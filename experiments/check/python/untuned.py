"""Common values, by name, of parameters that a file leaves to a tuner or its callers, and kernels with them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

_SIDE = r"^((b|blk|block|tile)(_?size)?_?{0}|{0}_?(block|tile)(_?size)?|(blk|block|tile)(_?size)?)$"
_VALUES = (
    (r"^(group|block|tile)_?size$", 128),
    (_SIDE.format("[mn]"), 64),
    (_SIDE.format("k"), 32),
    (r"^group(_?size)?_?m$|^group$", 8),
    (r"^zero_?(point)?s?(_\w)?$|^qzeros$", None),
    (r"warps$", 4),
    (r"stages$|buffers$", 3),
    (r"split_?k$", 2),
    (r"num_sms?$|sm_count$", 132),
    (r"^batch(es|_?size)?$|^num_batches$", 1),
    (r"acc\w*dtype|dtype_acc", tl.float32),
    (r"activation$|^act$", ""),
    (r"^(is_)?(even|divisible)(_|$)|_divisible$|subtile$", False),  # which is right at any size
)
UNKNOWN = object()


def common(name: str) -> object:
    """Returns the common value of a parameter of this name; UNKNOWN where there is none."""
    return next((value for pattern, value in _VALUES if re.search(pattern, name.lower())), UNKNOWN)


def tile_side(constants: Mapping[str, Any], axis: str) -> int:
    """Returns the constant that is a kernel's tile along m, n or k; 0 where no name is one."""
    found = (value for name, value in constants.items() if re.search(_SIDE.format(axis), name.lower()))
    return next((value for value in found if isinstance(value, int)), 0)


def plain(kernel: Any) -> Any:
    while isinstance(kernel, KernelInterface):
        kernel = kernel.fn
    return kernel


def constants(kernel: Any, specified: Iterable[str] = ()) -> dict[str, object]:
    """Returns common values of the parameters of a kernel that have no default and are not specified."""
    parameters = inspect.signature(plain(kernel)).parameters
    open_ = [name for name, each in parameters.items() if each.default is each.empty and name not in specified]
    values = {name: 1 if re.search("split", name, re.I) else common(name) for name in open_}
    return {name: value for name, value in values.items() if value is not UNKNOWN}


class Untuned(Autotuner):
    """A kernel whose own decorators fail: it has one configuration, of common values."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel, kernel.arg_names, None, key=[], reset_to_zero=None, restore_value=None)
        self.name = self.base_fn.__name__
        self.defines: Mapping[str, object] = {}  # of -D
        self.selected: dict[str, object] = {}  # for the last launch

    def prune_configs(self, kwargs: Mapping[str, object]) -> list[triton.Config]:
        """Returns values for the parameters that the current launch does not pass."""
        passed = (self.nargs or {}).keys() | kwargs.keys()
        by_user = {x: value for x, value in self.defines.items() if x in self.arg_names and x not in passed}
        self.selected = constants(self.base_fn, passed) | by_user
        self.configs = [triton.Config(self.selected, num_warps=None, num_stages=None, num_ctas=None)]
        return self.configs
