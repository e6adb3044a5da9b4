// Functions that nvcc calls, and does not inline, as the reference GPU runs them: test_call.py.
#include <cassert>
#include <cstdio>

struct Pair {
    int a;
    float b;
};
struct Array {
    int numbers[40];
};
__noinline__ __device__ int three(int a, float b) { return a * 3 + (int)b; }
__noinline__ __device__ int five(int a, float b) { return a * 5 + (int)b; }
__noinline__ __device__ Pair swapped(Pair p) { return {(int)p.b, (float)p.a}; }
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
// each call has its own `mine`, whose address the next one is given
__noinline__ __device__ int sum(int n, const int* above) {
    int mine = *above + n;
    if (n == 0) return mine;
    int below = sum(n - 1, &mine);
    return below ^ mine;
}
__device__ int even(int n);
__noinline__ __device__ int odd(int n) { return n == 0 ? 0 : even(n - 1) * 2 + 1 - even(n - 1); }
__noinline__ __device__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ int (*table[2])(int, float) = {three, five};
struct Shape {
    virtual __device__ int area() { return 1; }
};
struct Square : Shape {
    int side;
    __device__ int area() override { return side * side; }
};

extern "C" {
__global__ void call(int* out) { out[threadIdx.x] = three(threadIdx.x, 2.5f); }
__global__ void call_of_some(int* out) {
    if (threadIdx.x % 3 == 0) out[threadIdx.x] = three(threadIdx.x, 1);
}
__global__ void structs(Pair p, int* out) {
    Pair q = swapped({p.a + (int)threadIdx.x, p.b});
    out[threadIdx.x] = q.a * 1000 + (int)q.b;
}
__global__ void recursion(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }
__global__ void recursion_with_locals(int* out) {
    int zero = 0;
    out[threadIdx.x] = sum(threadIdx.x % 10, &zero);
}
__global__ void recursion_of_two(int* out) { out[threadIdx.x] = odd(threadIdx.x % 6); }
__global__ void endless(int* out) {
    int zero = 0;
    out[threadIdx.x] = sum(out[0] + 100000, &zero);
}
__global__ void pointers(int* out) { out[threadIdx.x] = table[threadIdx.x % 2](threadIdx.x, 1); }
__global__ void no_function(int* out) { table[threadIdx.x + 2](threadIdx.x, 1); }
__global__ void virtuals(int* out) {
    Square square;
    square.side = threadIdx.x;
    Shape* shape = out[0] ? &square : new Shape;
    out[threadIdx.x] = shape->area();
}
__global__ void array(const __grid_constant__ Array by_value, int* out) {
    out[threadIdx.x] = by_value.numbers[threadIdx.x];
}
__global__ void prints(int* out) {
    if (threadIdx.x < 2)
        printf("%d %5.2f|%-4s|%c %lld %x %% %p\n", threadIdx.x, 1.5, "abc", 'x', 1ll << 40, -1, (void*)16);
}
__global__ void asserts(int* out) { assert(threadIdx.x < 5 && "small"); }
__global__ void allocates(int* out) {
    int* mine = (int*)malloc(out[0]);
    if (mine) *mine = threadIdx.x;
    out[threadIdx.x] = mine ? *mine : -1;
    free(mine);
}
}
