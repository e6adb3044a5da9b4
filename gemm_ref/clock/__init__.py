"""Predicted times of kernels on GPUs that are not there."""
