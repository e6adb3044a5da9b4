// The CUDA runtime as far as host code needs it up to its launches, which are written down and not carried out.
//
// `program OUT SIZES FLAGS CALL M N K ALPHA BETA` runs checked_start(CALL), which the text behind the user's file
// defines. OUT gets a line for each allocation, memset, copy, launch and synchronisation; SIZES has a line for each
// kernel that is recorded, of its name and the bytes of its parameters, and a word behind these if it is not the one
// that is looked for. Once the one that is looked for has been launched, the program ends where it launches with the
// same arguments again or reads its results; where FLAGS begin with 1, also where it synchronises, and with 0, never.
// Where 1 is the second of FLAGS, the GPU is small; behind the third is its number of multiprocessors. A, B, C and D
// lie at 65 to 68 << 40, what is allocated after them: everything is memory of the host, so copies are copies, of a
// large matrix up to kCopied. The C++ library is not used: its headers take most of the time to compile.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kSpacing = size_t(1) << 40, kLargest = size_t(1) << 35;
constexpr size_t kCopied = size_t(1) << 26;  // bytes: launches do not depend on what follows, and it may be gigabytes
// Places are so high that no two sizes beside each other in a struct look like an address.
constexpr int kFirst = 64, kFirstFree = 72, kHeap = 85, kLastFree = 120;  // the program's own heap is at kHeap and behind
constexpr unsigned kSeconds = 8;
constexpr size_t kMaxLaunches = 32, kFewBytes = 4096;

FILE* out;
char stops;
bool small, is_written[kLastFree + 1];
int next_place = kFirstFree, multiprocessors;
size_t next_handle = 8;  // of streams and events, behind those that CUDA itself names
double numbers[6];  // M, N, K, alpha, beta, whether a main goes on where it would end with an error
const char* sizes = "";

template <class T>
struct List {  // zero before any constructor runs, so that kernels can register themselves before main
    T* items;
    size_t count;
    void append(const T& item) {
        items = static_cast<T*>(realloc(items, (count + 1) * sizeof(T)));
        items[count++] = item;
    }
};

struct Registered {
    const void* host;
    const char* name;  // in PTX
};
List<Registered> kernels;

const char* name_of(const void* host) {
    for (size_t index = kernels.count; index-- > 0;)
        if (kernels.items[index].host == host) return kernels.items[index].name;
    return "";
}

// The bytes of a kernel's parameters, as they stand behind its name in `sizes`; null for one that is not looked for.
const char* parameters_of(const char* name) {
    const size_t length = strlen(name);
    for (const char* line = sizes; *line; line = strchr(line, '\n') + 1)
        if (length && !strncmp(line, name, length) && line[length] == ' ') return line + length;
    return nullptr;
}

void* map_at(int place, size_t bytes) {
    void* wish = reinterpret_cast<void*>(kSpacing * place);
    void* got = mmap(wish, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != wish) {
        fprintf(stderr, "no memory at place %d\n", place);
        _exit(3);
    }
    return got;
}

void* allocate(size_t bytes) {
    if (next_place > kLastFree || bytes > kLargest) return malloc(bytes);
    if (next_place == kHeap) next_place += 2;
    void* made = map_at(next_place++, bytes);
    fprintf(out, "alloc %zu %zu\n", reinterpret_cast<size_t>(made), bytes);
    return made;
}

List<char*> launched;  // the arguments of each launch

// Ends the program if it has launched the kernel; where it only synchronises, if FLAGS say so.
void end(char least) {
    if (launched.count && stops != '0' && stops <= least) fflush(out), _exit(0);
}

// Whether nothing says what is at an address: what a caller passes, or what was allocated and not written.
bool is_unknown(const void* source) {
    const size_t place = reinterpret_cast<size_t>(source) / kSpacing;
    return !source || (place > kFirst && place < size_t(next_place) && !is_written[place]);
}

void write(const void* target) {
    const size_t place = reinterpret_cast<size_t>(target) / kSpacing;
    if (place <= kLastFree) is_written[place] = true;
}

cudaError_t copy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDeviceToHost) {
        end('2');
        if (bytes <= kFewBytes && is_unknown(source)) fprintf(out, "unknown %zu\n", bytes);
    }
    write(target);
    fprintf(out, "copy %zu %zu %zu\n", reinterpret_cast<size_t>(target), reinterpret_cast<size_t>(source), bytes);
    if (target && source)  // a vector that no file filled has no place
        memmove(target, source, bytes < kCopied ? bytes : kCopied);
    return cudaSuccess;
}

cudaError_t set(void* target, int value, size_t bytes) {
    write(target);
    fprintf(out, "set %zu %d %zu\n", reinterpret_cast<size_t>(target), value & 255, bytes);
    if (target) memset(target, value, bytes < kCopied ? bytes : kCopied);
    return cudaSuccess;
}

void synchronise(const char* what, const void* stream, const void* event) {
    fprintf(out, "%s %zu %zu\n", what, reinterpret_cast<size_t>(stream), reinterpret_cast<size_t>(event));
}

template <class T>
cudaError_t new_handle(T* made) {
    return *made = reinterpret_cast<T>(next_handle++), cudaSuccess;
}

cudaError_t launch(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream, dim3 cluster) {
    const char *name = name_of(f), *bytes = parameters_of(name);
    if (!bytes) return cudaSuccess;
    if (!block.x || !block.y || !block.z) return cudaErrorInvalidConfiguration;  // of a struct that only a caller fills
    char *text, *next;
    size_t length;
    FILE* made = open_memstream(&text, &length);
    for (size_t index = 0; const long size = *bytes == '\n' ? 0 : strtol(bytes, &next, 10); ++index, bytes = next) {
        fputc(' ', made);
        for (long at = 0; at < size; ++at)
            fprintf(made, "%02x", static_cast<const unsigned char*>(arguments[index])[at]);
    }
    fclose(made);
    const bool is_other = *bytes == ' ';
    for (size_t index = 0; index < launched.count && !is_other; ++index)
        if (!strcmp(launched.items[index], text)) end('2');
    fprintf(out, "%s %s %u %u %u %u %u %u %zu %u %u %u %zu%s\n", is_other ? "other" : "launch", name, grid.x, grid.y,
            grid.z, block.x, block.y, block.z, shared, cluster.x, cluster.y, cluster.z, reinterpret_cast<size_t>(stream),
            text);
    if (is_other) return cudaSuccess;
    launched.append(text);
    fflush(out);
    if (launched.count >= kMaxLaunches) end('2');
    return cudaSuccess;
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    void* stream;
};
List<Configuration> pushed;

// What a CUtensorMap holds here: the arguments of its encoding, which the reference GPU reads.
struct Encoded {
    char mark[8];
    unsigned long long base, dims[5], strides[4];
    unsigned short box[5], steps[5];
    unsigned char type, rank, interleave, swizzle, fill;
};
static_assert(sizeof(Encoded) <= sizeof(CUtensorMap));

}  // namespace

void checked_start(int which);  // behind the user's file
double checked_number(int which) { return numbers[which]; }
extern "C" void* checked_allocate(size_t bytes) {  // of a caller, who may have cleared it
    void* made = allocate(bytes);
    fprintf(out, "set %zu 0 %zu\n", reinterpret_cast<size_t>(made), bytes);
    return made;
}
// Words for a main, or for what it reads: M, N, K are numbers.
static List<char*> words_of(const char* text) {
    List<char*> found{};
    char* rest = strdup(text);
    for (char* word = strtok(rest, " "); word; word = strtok(nullptr, " ")) {
        const char* axis = strstr("MNK", word);
        char number[24];
        if (axis) snprintf(number, sizeof number, "%ld", static_cast<long>(numbers[axis - "MNK"]));
        found.append(strdup(axis ? number : word));
    }
    return found;
}
extern "C" char** checked_words(const char* text, const char* input) {
    List<char*> given = words_of(text), typed = words_of(input);
    given.append(nullptr);
    const int read = memfd_create("input", 0);
    for (size_t index = 0; index < typed.count; ++index) dprintf(read, "%s\n", typed.items[index]);
    lseek(read, 0, SEEK_SET);
    dup2(read, 0);
    return given.items;
}

int main(int, char** argv) {
    out = fopen(argv[1], "w");
    sizes = argv[2];
    stops = argv[3][0], small = argv[3][1] == '1', multiprocessors = atoi(argv[3] + 3);
    for (int index = 0; index < 5; ++index) numbers[index] = atof(argv[5 + index]);
    numbers[5] = argv[3][2] == '1';
    for (int place = 1; place <= 4; ++place) map_at(kFirst + place, kLargest);
    alarm(kSeconds);
    checked_start(atoi(argv[4]));
    fclose(out);
    _exit(0);
}

extern "C" {

void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    kernels.append({host, name});
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    pushed.append({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    const Configuration last = pushed.items[--pushed.count];
    *grid = last.grid, *block = last.block, *shared = last.shared, *static_cast<void**>(stream) = last.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t on) {
    return launch(f, grid, block, arguments, shared, on, dim3(1, 1, 1));
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t on) {
    return launch(f, grid, block, arguments, shared, on, dim3(1, 1, 1));
}
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t)
    __attribute__((alias("cudaLaunchKernel")));
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void** arguments) {
    dim3 cluster(1, 1, 1);
    for (unsigned index = 0; index < config->numAttrs; ++index)
        if (config->attrs[index].id == cudaLaunchAttributeClusterDimension) {
            const auto& dims = config->attrs[index].val.clusterDim;
            cluster = dim3(dims.x, dims.y, dims.z);
        }
    return launch(f, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream, cluster);
}

cudaError_t cudaMalloc(void** at, size_t bytes) { return *at = allocate(bytes), cudaSuccess; }
cudaError_t cudaMallocManaged(void** at, size_t bytes, unsigned) { return *at = allocate(bytes), cudaSuccess; }
cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t) { return *at = allocate(bytes), cudaSuccess; }
cudaError_t cudaMallocPitch(void** at, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 255) / 256 * 256;
    return *at = allocate(*pitch * height), cudaSuccess;
}
cudaError_t cudaMallocHost(void** at, size_t bytes) { return *at = calloc(bytes + 256, 1), cudaSuccess; }
cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) { return *at = calloc(bytes + 256, 1), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    synchronise("wait", nullptr, nullptr);
    return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    for (size_t row = 0; row < height; ++row)
        copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) { return set(at, value, bytes); }
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) { return set(at, value, bytes); }

cudaError_t cudaStreamCreate(cudaStream_t* made) { return new_handle(made); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
    new_handle(made);
    if (flags == cudaStreamNonBlocking) synchronise("nonblocking", *made, nullptr);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int) {
    return cudaStreamCreateWithFlags(made, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t* made) { return new_handle(made); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) { return new_handle(made); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return synchronise("record", stream, event), cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return synchronise("await", stream, event), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return end('1'), synchronise("join", stream, nullptr), cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return end('1'), synchronise("join", nullptr, event), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return end('1'), synchronise("wait", nullptr, nullptr), cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// An H100, which the reference GPU stands for.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "NVIDIA H100");
    found->major = 9, found->minor = 0, found->multiProcessorCount = multiprocessors, found->warpSize = 32;
    found->totalGlobalMem = size_t(80) << 30, found->sharedMemPerBlock = 48 << 10;
    found->sharedMemPerBlockOptin = 227 << 10, found->sharedMemPerMultiprocessor = 228 << 10;
    if (small) found->sharedMemPerBlockOptin = found->sharedMemPerMultiprocessor = 48 << 10;
    found->regsPerBlock = found->regsPerMultiprocessor = 1 << 16;
    found->maxThreadsPerBlock = 1024, found->maxThreadsPerMultiProcessor = 2048, found->maxBlocksPerMultiProcessor = 32;
    found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024, found->maxThreadsDim[2] = 64;
    found->maxGridSize[0] = 2147483647, found->maxGridSize[1] = found->maxGridSize[2] = 65535;
    found->l2CacheSize = 50 << 20, found->memoryBusWidth = 5120, found->cooperativeLaunch = 1;
    found->managedMemory = found->concurrentManagedAccess = found->unifiedAddressing = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    switch (what) {
        case cudaDevAttrMultiProcessorCount: *value = device.multiProcessorCount; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = device.sharedMemPerBlock; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device.sharedMemPerBlockOptin; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = device.sharedMemPerMultiprocessor; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = device.maxThreadsPerBlock; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = device.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrL2CacheSize: *value = device.l2CacheSize; break;
        default: *value = 1;
    }
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) { return *blocks = 1, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
    return *blocks = 1, cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return end('2'), *ms = 1, cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "no error"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    Encoded encoded{};
    memcpy(encoded.mark, "checked", 8);
    encoded.base = reinterpret_cast<unsigned long long>(base);
    encoded.type = type, encoded.rank = rank, encoded.interleave = interleave, encoded.swizzle = swizzle;
    encoded.fill = fill;
    for (unsigned axis = 0; axis < rank && axis < 5; ++axis) {
        encoded.dims[axis] = dims[axis], encoded.box[axis] = box[axis], encoded.steps[axis] = steps[axis];
        if (axis + 1 < rank) encoded.strides[axis] = strides[axis];
    }
    memcpy(map, &encoded, sizeof encoded);
    return CUDA_SUCCESS;
}
static cudaError_t entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* found) {
    *function = strcmp(symbol, "cuTensorMapEncodeTiled") ? nullptr : reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
    if (found) *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long, cudaDriverEntryPointQueryResult* found) {
    return entry_point(symbol, function, found);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
    return entry_point(symbol, function, found);
}

}  // extern "C"
