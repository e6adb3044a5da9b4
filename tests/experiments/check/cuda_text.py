"""Parts of CUDA files that the tests of `check` are made of."""

SIGNATURE = "(const float* A, const float* B, float* C, int M, int N, int K)"
SUM = """int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= {m} || col >= {n}) return;
  float sum = 0;
  for (int k = 0; k < {k}; ++k) sum += {product};
  {store};
"""
SIZE = ("19x21x5",)
