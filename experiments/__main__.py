"""`python -m experiments`."""

import sys

try:
    from experiments.cli import main
except KeyboardInterrupt:
    sys.exit(130)  # as in `cli`, which is not there yet

main("python -m experiments")
