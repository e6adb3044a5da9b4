"""What the GPU's clocks, power and temperature were while something was timed, and why the driver held them down."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

PERIOD_S = 0.02
# NVML's clocks event reasons (nvml.h, nvmlClocksEventReason*); idle and the settings of an application are no throttle.
REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
SETTLED_SHARE = 0.01  # clocks that differ by no more than this are one clock
_SETTLED_READINGS = 5


@dataclass(frozen=True)
class Sample:
    """One reading."""

    sm_mhz: float
    power_w: float
    temperature_c: float
    reasons: int  # bits of REASONS


@dataclass(frozen=True)
class Conditions:
    """A summary of the readings over some time, by the names of the results' columns; None if there were none."""

    sm_mhz: float | None = None  # median
    sm_mhz_low: float | None = None
    power_w: float | None = None  # median
    power_w_high: float | None = None
    temperature_c: float | None = None  # largest
    throttle: str = ""


def open_gpu() -> tuple[ModuleType, object]:
    """Returns the NVML module and its handle of torch's current GPU, valid until `nvmlShutdown`.

    Raises what NVML raises if it is not available.
    """
    import pynvml

    pynvml.nvmlInit()
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


def read(nvml, gpu) -> Sample:
    """Returns one reading of a GPU that `open_gpu` opened."""
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or (
        nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name before driver 535
    )
    return Sample(
        sm_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        power_w=_power_w(nvml, gpu),
        temperature_c=nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        reasons=reasons(gpu),
    )


def _power_w(nvml, gpu) -> float:
    """The momentary power if the GPU reports it (Hopper and newer), else NVML's average over up to a second."""
    field = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if field.nvmlReturn == nvml.NVML_SUCCESS:
        return field.value.uiVal / 1000
    return nvml.nvmlDeviceGetPowerUsage(gpu) / 1000


def summarize(samples: list[Sample]) -> Conditions:
    """Returns the conditions that the samples show."""
    if not samples:
        return Conditions()
    powers = [sample.power_w for sample in samples]
    clocks = [sample.sm_mhz for sample in samples]
    bits = int(np.bitwise_or.reduce([sample.reasons for sample in samples]))
    return Conditions(
        sm_mhz=float(np.median(clocks)),
        sm_mhz_low=min(clocks),
        power_w=float(np.median(powers)),
        power_w_high=max(powers),
        temperature_c=max(sample.temperature_c for sample in samples),
        throttle=", ".join(name for bit, name in REASONS.items() if bits & bit),
    )


class Telemetry:
    """Reads the GPU every PERIOD_S in a thread of its own; a context manager. It reads nothing if NVML is missing.

    `unavailable` then says why; environment.json has the same.
    """

    def __init__(self) -> None:
        self.unavailable = ""
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Telemetry:
        try:
            self._nvml, self._gpu = open_gpu()
        except Exception as error:  # no management library, or a virtual GPU that hides it
            self.unavailable = str(error)
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def window(self) -> Iterator[list[Sample]]:
        """Yields a list that holds, after the block, the samples taken inside it."""
        first = len(self._samples)
        taken: list[Sample] = []
        yield taken
        taken += self._samples[first:]

    def has_settled(self) -> bool:
        """Whether the last readings of the clock agree: False before there are enough, and True without NVML."""
        if self.unavailable:
            return True
        last = [sample.sm_mhz for sample in self._samples[-_SETTLED_READINGS:]]
        return len(last) == _SETTLED_READINGS and max(last) - min(last) <= SETTLED_SHARE * max(last)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._samples.append(read(self._nvml, self._gpu))
            except Exception as error:  # the driver gave up on NVML: what was read so far stays
                self.unavailable = str(error)
                return
            time.sleep(PERIOD_S)
