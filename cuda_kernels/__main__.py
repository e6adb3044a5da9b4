"""`python -m cuda_kernels build` and `python -m cuda_kernels ptx STAGE`."""

from __future__ import annotations

import sys
import time

import typer

app = typer.Typer(help="Compile the CUDA rungs.", add_completion=False, pretty_exceptions_enable=False)


@app.command()
def build() -> None:
    """Compile every rung for this machine's GPU, side by side, and say how long it took."""
    import torch

    import gemm_ref
    from cuda_kernels import build_all

    if not torch.cuda.is_available():
        _fail("there is no GPU here to compile for; `python -m cuda_kernels ptx STAGE` needs none")
    implementations = [
        item
        for item in gemm_ref.implementations(("cuda",))
        if item.stage.refusal(torch.cuda.get_device_capability()) is None
    ]
    start = time.perf_counter()
    try:
        build_all(implementations, torch.cuda.get_device_capability())
    except gemm_ref.build.BuildError as error:
        _fail(str(error))
    typer.echo(f"{len(implementations)} kernels are built, in {time.perf_counter() - start:.1f} s")


@app.command()
def ptx(stage: str, variant: str = "default") -> None:
    """Print the PTX that the reference GPU runs for one rung."""
    import gemm_ref
    from cuda_kernels.source import ptx as ptx_of

    try:
        rung = gemm_ref.get_stage(stage)
        rung.config(variant)
        typer.echo(ptx_of(gemm_ref.Implementation(rung, variant, "cuda", rung.maths[0])), nl=False)
    except (ValueError, gemm_ref.build.BuildError) as error:
        _fail(str(error))


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    app()
