"""What experiments measure, where it is more than a choice of kernels: probes, loops and changed rungs."""
