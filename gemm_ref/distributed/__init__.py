"""Products on several GPUs: what each rank holds, how it gets the rest, and in what order it multiplies.

`layouts` has the problems, `transport` the ways in which ranks reach each other's memory, `launch` starts the ranks,
and `model` says what to expect. The local product is anything that is called as `gemm(a, b, out=c)`.
"""
