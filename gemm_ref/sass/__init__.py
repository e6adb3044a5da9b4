"""Machine code (SASS) as data: read from a cubin, cut into loops, counted, matched with PTX, and what fits an SM.

NVIDIA documents the opcodes by one line each ('CUDA Binary Utilities', 'Instruction Set Reference'); their suffixes
are read here as their names suggest, and an instruction that changes the flow of control in a way that this package
does not know is an error.
"""
