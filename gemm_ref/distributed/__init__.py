"""Products on several GPUs: what each rank holds, how it gets the rest, and in what order it multiplies.

`layouts` divides the problems, `transport` reaches the memory of other ranks, `spawn` starts the ranks, and `model`
predicts the time. The local product is anything that is called as `gemm(a, b, out=c)`.
"""
