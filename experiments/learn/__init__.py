"""A course that grades itself without a GPU: `python -m experiments learn`.

`course` reads the exercises, `grading` grades a file with `experiments.check`, `command` has the learner's files.
"""
