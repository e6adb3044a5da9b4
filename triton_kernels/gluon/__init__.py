"""The rungs in Gluon: Triton's lower level, where the kernel says which thread holds which element."""
