"""Bring your own kernel: is it right, at which sizes, what does it do to memory, and what is wrong with it?

`python -m experiments check KERNEL.cu` runs a `__global__` function on the reference GPU (`gemm_ref.ptx`), a Python
file with a Triton or Gluon kernel likewise; docs/check.md shows it. `command` reads the file and the options,
`examine` runs the kernel, `show` prints what was found.
"""
