"""The picture of `decode`: the share of the read roof over the rows of A, launched alone and in a graph of layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import frames, stats, store
from experiments.records.ceilings import Roofs
from experiments.records.rows import COLD, LAYERS

_TITLES = {COLD: "a launch by itself, cold cache", LAYERS: "20 layers in a CUDA graph"}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw decode.csv of `folder`; nothing without its rows or without roofs."""
    rows, roofs = frames.on_tensor_cores(store.read(folder, "decode")), Roofs.of(folder)
    rows = rows[(rows["dialect"] != "") | (rows["backend"] == "cublas")]
    if roofs is None or rows.empty:
        return
    rows = rows.assign(share=100 * roofs.read_shares(rows))
    maths, layers = frames.maths_of(rows), len(rows[["n", "k"]].drop_duplicates())
    subtitle = (
        f"bytes of A, B and C over time, beside {format_fixed(roofs.read, 2)} TB/s, which `roofs` measured:\n"
        f"geometric mean of {layers} layers, whose weights are N × K, as torch.nn.Linear has them"
    )
    size = style.WIDTH, 2.0 + 1.9 * len(maths)
    sheet = Sheet(size, "How near decoding comes to the read roof", subtitle, store.caption(rows, folder))
    axes = sheet.figure.subplots(len(maths), len(_TITLES), sharex=True, sharey=True, squeeze=False)
    for line, math in zip(axes, maths, strict=True):
        for ax, (mode, title) in zip(line, _TITLES.items(), strict=True):
            own = rows[(rows["math"] == math) & (rows["mode"] == mode)]
            for dialect, each in own.groupby("dialect"):
                mean = each.groupby("m")["share"].apply(stats.geometric_mean)
                look = style.look_of(str(dialect))
                ax.plot(mean.index, mean, look.marker + "-", color=look.colour, ms=4, lw=1.2)
            ax.axhline(100, color=style.BASELINE, lw=1.0, zorder=1)
            ax.set_title(f"{math}, {title}", size=9.5)
        line[0].set_ylabel("% of the read roof", size=9)
    axes[0, 0].set(xscale="log", ylim=(0, 110), xticks=sorted(set(rows["m"])))
    style.plain(axes[0, 0].xaxis)
    for ax in axes[-1]:
        ax.set_xlabel("rows of A", size=9)
    style.legend(sheet.figure, rows["dialect"], library="cuBLAS")
    yield "decode", sheet.fit()
