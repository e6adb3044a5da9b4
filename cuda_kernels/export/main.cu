// --- The program: it fills A and B, checks C against a product in double, and times the kernel ---
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace exported {

constexpr int WARM_UPS = 3, RUNS = 20;
constexpr double PRODUCTS_CHECKED = 1 << 30;  // a CPU takes one or two seconds; above it, some rows of C are checked

static void require(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

// A matrix in the memory of the host and of the GPU, whose rows of `columns` elements are `pitch` elements apart. It is
// filled with NaN first, and the elements between two rows remain NaN.
template <typename T>
struct Matrix {
    int rows, columns;
    size_t pitch;
    std::vector<T> host;
    T* device = nullptr;

    Matrix(int rows, int columns, size_t pitch) : rows(rows), columns(columns), pitch(pitch), host(rows * pitch) {
        memset(host.data(), 0xFF, bytes());  // a NaN in every one of the types
        require(cudaMalloc(reinterpret_cast<void**>(&device), bytes()), "cudaMalloc");
    }
    size_t bytes() const { return host.size() * sizeof(T); }
    float at(int row, int column) const { return static_cast<float>(host[row * pitch + column]); }
    void send() { require(cudaMemcpy(device, host.data(), bytes(), cudaMemcpyHostToDevice), "copy to the GPU"); }
    void receive() { require(cudaMemcpy(host.data(), device, bytes(), cudaMemcpyDeviceToHost), "copy from the GPU"); }

    // Fills it with numbers in [-1, 1), the same in every run, rounded to the type.
    void fill(unsigned long long seed) {
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) {
                unsigned long long x =
                    (row * static_cast<unsigned long long>(columns) + column + 1) * 0x9E3779B97F4A7C15;
                x = (x ^ seed ^ x >> 29) * 0xBF58476D1CE4E5B9;
                host[row * pitch + column] = static_cast<T>(static_cast<float>(x >> 40) / (1 << 23) - 1.0f);
            }
        }
        send();
    }
};

// An operand split into parts, which are stored one below the other, and the exponents of its rows or of its columns.
struct SplitOperand {
    const Matrix<Operand>& source;
    const int by_rows, blocks, cluster;
    Matrix<Part> parts;
    int* exponents = nullptr;

    SplitOperand(const Matrix<Operand>& source, bool by_rows, int i)
        : source(source),
          by_rows(by_rows),
          blocks(SPLIT_BLOCKS[i]),
          cluster(SPLIT_CLUSTERS[i]),
          parts(PARTS * source.rows, source.columns, SPLIT_PITCHES[i]) {
        parts.send();
        const size_t lines = by_rows ? source.rows : source.columns;
        require(cudaMalloc(reinterpret_cast<void**>(&exponents), lines * sizeof(int)), "cudaMalloc");
    }
    void split() const {
        require(SPLIT(source.device, parts.device, exponents, source.rows, source.columns, parts.pitch, by_rows, blocks,
                      cluster, nullptr),
                "the split");
    }
};

// Returns the tensor map of a matrix for the TMA unit. The driver's function is looked up by name, so that nothing
// links to libcuda.
static CUtensorMap encode(const Map& map, void* address) {
    decltype(&cuTensorMapEncodeTiled) encoder = nullptr;
    void** const place = reinterpret_cast<void**>(&encoder);
    cudaDriverEntryPointQueryResult status;
#if CUDART_VERSION >= 12050
    require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", place, 12000, cudaEnableDefault, &status),
            "driver");
#else
    require(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", place, cudaEnableDefault, &status), "driver");
#endif
    CUtensorMap encoded;
    const cuuint64_t sizes[2] = {map.columns, map.rows}, steps[1] = {map.row_bytes};
    const cuuint32_t box[2] = {map.box_columns, map.box_rows}, strides[2] = {1, 1};
    if (status != cudaDriverEntryPointSuccess ||
        encoder(&encoded, static_cast<CUtensorMapDataType>(map.element_type), 2, address, sizes, steps, box, strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(map.swizzle),
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
        fprintf(stderr, "the driver made no tensor map of %c\n", map.matrix);
        exit(2);
    }
    return encoded;
}

// Returns how many elements of C are wrong. Elements that were never written are counted in all of C, others in `rows`
// rows that are spread from the first to the last. The allowed error is that of gemm_ref.check.
static long long wrong_elements(const Matrix<Operand>& A, const Matrix<Operand>& B, const Matrix<Output>& C, int rows) {
    std::vector<float> b(static_cast<size_t>(K) * N);
    for (int k = 0; k < K; ++k) {
        for (int n = 0; n < N; ++n) b[static_cast<size_t>(k) * N + n] = B_BY_ROWS ? B.at(k, n) : B.at(n, k);
    }
    long long wrong = 0;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) wrong += std::isnan(C.at(m, n));
    }
    std::vector<double> product(N), scale(N);
    for (int i = 0; i < rows; ++i) {
        const int m = rows == 1 ? 0 : static_cast<int>(static_cast<long long>(i) * (M - 1) / (rows - 1));
        std::fill(product.begin(), product.end(), 0.0);
        std::fill(scale.begin(), scale.end(), 0.0);
        for (int k = 0; k < K; ++k) {
            const double a = A.at(m, k);
            const float* const row = &b[static_cast<size_t>(k) * N];
            for (int n = 0; n < N; ++n) product[n] += a * row[n], scale[n] += std::fabs(a * row[n]);
        }
        for (int n = 0; n < N; ++n) {
            const double allowed =
                (2 * OPERAND_EPS + K * SUM_EPS) * scale[n] + RESULT_EPS * std::fabs(product[n]) + TINY;
            const double error = std::fabs(C.at(m, n) - product[n]);
            if (error > allowed && wrong++ == 0) {
                fprintf(stderr, "C[%d, %d] is %g and should be %g\n", m, n, C.at(m, n), product[n]);
            }
        }
    }
    return wrong;
}

static int check_and_time() {
    cudaDeviceProp gpu;
    require(cudaGetDeviceProperties(&gpu, 0), "a GPU");
    Matrix<Operand> A(M, K, A_PITCH), B(B_BY_ROWS ? K : N, B_BY_ROWS ? N : K, B_PITCH);
    Matrix<Output> C(M, N, C_PITCH);
    A.fill(1), B.fill(2), C.send();

    LaunchShape shape = LAUNCH, then = THEN;
    if (PARTIALS > 0) {
        require(cudaMalloc(reinterpret_cast<void**>(&shape.partials), PARTIALS * sizeof(float)), "cudaMalloc");
        if (THEN.grid[0] > 0) shape.then = &then;
    }
    if (FLAGS > 0) {
        require(cudaMalloc(reinterpret_cast<void**>(&shape.flags), FLAGS * sizeof(int)), "cudaMalloc");
        require(cudaMemset(shape.flags, 0, FLAGS * sizeof(int)), "cudaMemset");
    }
    void* multiplied[] = {A.device, B.device};
    std::vector<SplitOperand> split_operands;
    if (SPLIT) {
        split_operands.emplace_back(A, true, 0);
        split_operands.emplace_back(B, !B_BY_ROWS, 1);
        for (int i = 0; i < 2; ++i) {
            multiplied[i] = split_operands[i].parts.device, shape.exponents[i] = split_operands[i].exponents;
        }
    }
    std::vector<CUtensorMap> maps;
    for (const Map& map : MAPS) {
        if (map.matrix) maps.push_back(encode(map, map.matrix == 'C' ? C.device : multiplied[map.matrix - 'A']));
    }
    shape.tensor_maps = maps.data();
    const auto run = [&] {
        for (const SplitOperand& operand : split_operands) operand.split();
        require(launch(A.device, B.device, C.device, ROWS, COLUMNS, K, shape, nullptr), "the launch");
    };

    run();
    require(cudaDeviceSynchronize(), "the kernel");
    C.receive();
    const int rows = static_cast<int>(std::min<double>(M, std::max(1.0, PRODUCTS_CHECKED / N / K)));
    if (const long long wrong = wrong_elements(A, B, C, rows)) {
        fprintf(stderr, "%s: %lld elements of C are wrong or missing\n", NAME, wrong);
        return 1;
    }

    cudaEvent_t begin, end;
    require(cudaEventCreate(&begin), "an event");
    require(cudaEventCreate(&end), "an event");
    std::vector<float> times(RUNS);
    for (int i = -WARM_UPS; i < RUNS; ++i) {
        float milliseconds;
        require(cudaEventRecord(begin), "an event");
        run();
        require(cudaEventRecord(end), "an event");
        require(cudaEventSynchronize(end), "the kernel");
        require(cudaEventElapsedTime(&milliseconds, begin, end), "an event");
        if (i >= 0) times[i] = milliseconds;
    }
    std::nth_element(times.begin(), times.begin() + RUNS / 2, times.end());
    const double median = times[RUNS / 2];
    printf("%s on %s: every element written, %d of %d rows right; median of %d runs %.4f ms, %.1f TFLOP/s\n", NAME,
           gpu.name, rows, M, RUNS, median, 2.0 * M * N * K / median / 1e9);
    return 0;
}

}  // namespace exported

int main() { return exported::check_and_time(); }
