"""`python -m cuda_kernels build`, `... ptx STAGE`, `... export STAGE`, `... registry` and `... sanitize [STAGE]`."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Annotated

import typer

import gemm_ref

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gemm_ref.version import version

        typer.echo(f"gemm-ladder {version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile the CUDA rungs."""


@app.command()
def build() -> None:
    """Compile every rung for this machine's GPU, side by side, and say how long it took."""
    import torch

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
    from cuda_kernels.source import ptx as ptx_of

    try:
        rung = gemm_ref.get_stage(stage)
        variant = rung.find_variant(variant, "cuda")
        typer.echo(ptx_of(gemm_ref.Implementation(rung, variant, "cuda", rung.maths[0])), nl=False)
    except (ValueError, gemm_ref.build.BuildError) as error:
        _fail(str(error))


@app.command()
def export(
    stage: str,
    variant: str = "default",
    math: Annotated[str, typer.Option(help="such as bf16; the rung's first if not given")] = "",
    b_layout: Annotated[str, typer.Option(help="how B is stored: kn, or nk; the first that the rung reads")] = "",
    size: Annotated[str, typer.Option(help="4096, or MxNxK")] = "4096",
) -> None:
    """Print one rung as one .cu that needs nothing else: with a main that checks and times it at one size."""
    from cuda_kernels import source
    from cuda_kernels.export import export as text_of

    try:
        item = source.choose(gemm_ref.get_stage(stage), variant, math or None, b_layout or None)
        sizes = gemm_ref.Problem.parse(size)
        problem = dataclasses.replace(sizes, math=item.math, b_layout=item.b_layout)
        typer.echo(text_of(item, problem), nl=False)
    except ValueError as error:
        _fail(str(error))


@app.command()
def registry() -> None:
    """Write include/registry.cuh, with which a .cu compiles as it is stored, from the registry's values."""
    from cuda_kernels.source import REGISTRY_HEADER, registry_header
    from gemm_ref.build import write_whole

    write_whole(REGISTRY_HEADER, registry_header())


@app.command()
def sanitize(stage: str = typer.Argument(None)) -> None:
    """Run one rung, or all, at ragged sizes under each tool of compute-sanitizer; fail if one finds something."""
    from cuda_kernels.sanitize import sanitize as run
    from cuda_kernels.sanitize import select_kernels

    try:
        names = ", ".join(map(str, select_kernels(stage)))
        _need_a_gpu()
        typer.echo(f"compute-sanitizer over {names}")
        failed = False
        for tool, code, output in run(stage):
            summary = [line for line in output.splitlines() if "SUMMARY" in line] or output.splitlines()[-1:]
            typer.echo(output if code else f"{tool:<10} {summary[-1].strip('= ')}")
            failed |= code != 0
    except (ValueError, FileNotFoundError, gemm_ref.build.BuildError) as error:
        _fail(str(error))
    sys.exit(int(failed))


@app.command(hidden=True)  # what compute-sanitizer runs
def exercise(stages: list[str] = typer.Argument(None)) -> None:  # noqa: B008 (typer's way)
    """Run some rungs, or all, at ragged sizes on the GPU, and check the results."""
    from cuda_kernels.sanitize import exercise as run
    from cuda_kernels.sanitize import select_kernels

    _need_a_gpu()
    run(select_kernels(*stages or ()))


def _need_a_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        _fail("compute-sanitizer watches a GPU, and there is none here; the tests run on the reference GPU instead")


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    app()
