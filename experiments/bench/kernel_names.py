"""Which kernels a library's call ran on the GPU, by their names."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch


def kernel_names(work: Callable[[], object]) -> str:
    """The names of the kernels that one call ran, joined by ' + ', from torch's profiler (CUPTI).

    A machine that refuses to profile gives the reason in parentheses in their place.
    """
    from torch.profiler import ProfilerActivity, profile

    try:
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
            work()
            torch.cuda.synchronize()
    except RuntimeError as error:
        return f"(not profiled: {error})"
    kernels = [short(event.name) for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    names = dict.fromkeys(name for name in kernels if not name.startswith(("Memcpy", "Memset")))
    return " + ".join(names) or "(the profiler saw no kernel)"


def short(name: str) -> str:
    """A kernel's name without its return type, parameters and template arguments; a wrapper's only argument is kept."""
    name = re.sub(r"\(.*", "", name.removeprefix("void "))
    wrapped = re.fullmatch(r"[\w:]*Kernel2?<([\w:]+)>", name)
    return wrapped.group(1) if wrapped else re.sub(r"<.*", "", name)
