"""What experiments measure, where it is more than a choice of kernels: probes, loops, changed rungs, datasheets."""
