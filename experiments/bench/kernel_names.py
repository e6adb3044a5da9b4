"""The names of the kernels that a library's call runs on the GPU."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch


def kernel_names(work: Callable[[], object]) -> str:
    """The names of the kernels that one call ran, joined by ' + ', from torch's profiler (CUPTI).

    A machine that refuses to profile gives the reason in parentheses in their place.
    """
    try:
        names = dict.fromkeys(short(kernel.name) for kernel in kernels_of(work))
    except RuntimeError as error:
        return f"(not profiled: {error})"
    return " + ".join(names) or "(the profiler saw no kernel)"


def kernels_of(work: Callable[[], object]) -> list:
    """Returns the profiler's event of each kernel that one call ran. Raises RuntimeError if profiling is refused."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        work()
        torch.cuda.synchronize()
    on_gpu = [event for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [event for event in on_gpu if not event.name.startswith(("Memcpy", "Memset"))]


def short(name: str) -> str:
    """A kernel's name without its return type, parameters and template arguments; a wrapper's only argument is kept."""
    name = re.sub(r"\(.*", "", name.removeprefix("void "))
    wrapped = re.fullmatch(r"[\w:]*Kernel2?<([\w:]+)>", name)
    return wrapped.group(1) if wrapped else re.sub(r"<.*", "", name)
