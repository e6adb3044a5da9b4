"""Experiments on the ladder: one file, one question. Measure -> CSV -> plot are separate steps.

`python -m experiments --help` is the menu; `experiments/results/<device>/` holds what was measured.
"""
