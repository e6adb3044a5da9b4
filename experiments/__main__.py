"""`python -m experiments`."""

from experiments.cli import app

app(prog_name="python -m experiments")
