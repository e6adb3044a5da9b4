// Stands in for PyTorch's C++ headers: tensors that know where they lie and how large they are.
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#define TORCH_CHECK(condition, ...) if (!(condition)) { throw std::runtime_error(#condition); }
#define AT_ASSERTM TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define C10_CUDA_CHECK(call) ((void)(call))
#define AT_CUDA_CHECK(call) ((void)(call))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
#define TORCH_EXTENSION_NAME checked
#define CHECKED_CASE(element, T, ...) case at::ScalarType::element: { using scalar_t = T; return __VA_ARGS__(); }
#define CHECKED_DISPATCH(type, name, cases) \
    [&] { switch (type) { cases default: throw std::runtime_error(name); } }()
#define CHECKED_FLOATS(...) CHECKED_CASE(Float, float, __VA_ARGS__) CHECKED_CASE(Double, double, __VA_ARGS__)
#define CHECKED_HALVES(...) CHECKED_CASE(Half, __half, __VA_ARGS__) CHECKED_CASE(BFloat16, __nv_bfloat16, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) CHECKED_DISPATCH(type, name, CHECKED_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES AT_DISPATCH_FLOATING_TYPES
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...) \
    CHECKED_DISPATCH(type, name, CHECKED_FLOATS(__VA_ARGS__) CHECKED_CASE(Half, __half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(one, other, type, name, ...) \
    CHECKED_DISPATCH(type, name, CHECKED_FLOATS(__VA_ARGS__) CHECKED_HALVES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(other, ...) AT_DISPATCH_FLOATING_TYPES_AND2(other, other, __VA_ARGS__)
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(type, name, ...) CHECKED_DISPATCH(type, name, CHECKED_HALVES(__VA_ARGS__))
#define PYBIND11_MODULE(name, m) [[maybe_unused]] static void bind_##name(pybind11::module_& m)
#define TORCH_LIBRARY(name, m) [[maybe_unused]] static void bind_##name(pybind11::module_& m)
#define TORCH_LIBRARY_IMPL(name, key, m) [[maybe_unused]] static void bind_##name##_##key(pybind11::module_& m)

namespace pybind11 {
struct arg {
    template <class... T> arg(T&&...) {}
    template <class T> arg& operator=(T&&) { return *this; }
};
struct module_ {
    template <class... T> module_& def(T&&...) { return *this; }
    template <class... T> module_& impl(T&&...) { return *this; }
    template <class... T> std::string& doc(T&&...) { static std::string text; return text; }
};
inline arg operator""_a(const char*, size_t) { return {}; }
}  // namespace pybind11
namespace py = pybind11;

namespace c10 {
enum class ScalarType { Byte, Char, Short, Int, Long, Half, Float, Double, BFloat16, Bool };
enum DeviceType { CPU, CUDA };
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << static_cast<int>(type); }
using Half = __half;
using BFloat16 = __nv_bfloat16;
template <class T> using optional = std::optional<T>;
using IntArrayRef = std::vector<int64_t>;
struct Device {
    DeviceType kind = CUDA;
    Device(DeviceType type = CUDA, int = 0) : kind(type) {}
    Device(const char*) {}
    bool is_cuda() const { return true; }
    int index() const { return 0; }
    DeviceType type() const { return kind; }
    bool operator==(const Device&) const { return true; }
    bool operator!=(const Device&) const { return false; }
};
template <class T> struct scalar_of { static constexpr ScalarType value = ScalarType::Float; };
template <> struct scalar_of<__half> { static constexpr ScalarType value = ScalarType::Half; };
template <> struct scalar_of<__nv_bfloat16> { static constexpr ScalarType value = ScalarType::BFloat16; };
template <> struct scalar_of<double> { static constexpr ScalarType value = ScalarType::Double; };
template <> struct scalar_of<int> { static constexpr ScalarType value = ScalarType::Int; };
template <> struct scalar_of<int8_t> { static constexpr ScalarType value = ScalarType::Char; };
struct TensorOptions {
    ScalarType scalar = ScalarType::Float;
    TensorOptions() = default;
    TensorOptions(ScalarType type) : scalar(type) {}
    friend std::ostream& operator<<(std::ostream& out, const TensorOptions&) { return out; }
    TensorOptions dtype(ScalarType type) const { return type; }
    ScalarType dtype() const { return scalar; }
    template <class... T> TensorOptions device(T&&...) const { return *this; }
    template <class... T> TensorOptions requires_grad(T&&...) const { return *this; }
    template <class... T> TensorOptions layout(T&&...) const { return *this; }
};
namespace cuda {
struct CUDAStream {
    cudaStream_t stream() const { return nullptr; }
    operator cudaStream_t() const { return nullptr; }
};
inline CUDAStream getCurrentCUDAStream(int = 0) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = 0) { return {}; }
struct CUDAGuard {
    template <class... T> explicit CUDAGuard(T&&...) {}
};
using OptionalCUDAGuard = CUDAGuard;
}  // namespace cuda
}  // namespace c10

namespace at {
using namespace c10;
template <class T> struct DefaultPtrTraits { using PtrType = T*; };
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
// A tensor, or a part of one, as kernels are passed it by value.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
struct GenericPackedTensorAccessor {
    typename Traits<T>::PtrType data_;
    Index sizes_[N], strides_[N];
    __host__ __device__ Index size(int axis) const { return sizes_[axis]; }
    __host__ __device__ Index stride(int axis) const { return strides_[axis]; }
    __host__ __device__ T* data() const { return data_; }
    __host__ __device__ decltype(auto) operator[](Index index) const {
        if constexpr (N == 1) {
            return static_cast<T&>(data_[index * strides_[0]]);
        } else {
            GenericPackedTensorAccessor<T, N - 1, Traits, Index> part{data_ + index * strides_[0]};
            for (size_t axis = 1; axis < N; ++axis)
                part.sizes_[axis - 1] = sizes_[axis], part.strides_[axis - 1] = strides_[axis];
            return part;
        }
    }
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
namespace cuda {
using namespace c10::cuda;
inline cudaDeviceProp* getCurrentDeviceProperties() {
    static cudaDeviceProp found;
    cudaGetDeviceProperties(&found, 0);
    return &found;
}
}  // namespace cuda
struct Tensor {
    void* memory = nullptr;
    std::vector<int64_t> shape;
    ScalarType scalar = ScalarType::Float;

    Tensor() = default;
    Tensor(void* at, std::vector<int64_t> lengths, ScalarType type) : memory(at), shape(lengths), scalar(type) {}
    friend std::ostream& operator<<(std::ostream& out, const Tensor&) { return out; }
    bool defined() const { return memory; }
    void* data_ptr() const { return memory; }
    template <class T> T* data_ptr() const { return static_cast<T*>(memory); }
    template <class T> T* mutable_data_ptr() const { return static_cast<T*>(memory); }
    template <class T> const T* const_data_ptr() const { return static_cast<const T*>(memory); }
    template <class T> T* data() const { return static_cast<T*>(memory); }
    int64_t dim() const { return static_cast<int64_t>(shape.size()); }
    int64_t size(int64_t axis) const { return shape.at(axis < 0 ? axis + shape.size() : axis); }
    std::vector<int64_t> sizes() const { return shape; }
    int64_t stride(int64_t axis) const {
        int64_t step = 1;
        for (int64_t later = dim() - 1; later > (axis < 0 ? axis + dim() : axis); --later) step *= shape[later];
        return step;
    }
    int64_t numel() const {
        int64_t count = 1;
        for (int64_t length : shape) count *= length;
        return count;
    }
    ScalarType scalar_type() const { return scalar; }
    ScalarType type() const { return scalar; }
    ScalarType dtype() const { return scalar; }
    int64_t element_size() const { return scalar == ScalarType::Float ? 4 : scalar == ScalarType::Double ? 8 : 2; }
    TensorOptions options() const { return scalar; }
    Device device() const { return {}; }
    int get_device() const { return 0; }
    bool is_cuda() const { return true; }
    bool is_contiguous() const { return true; }
    Tensor contiguous() const { return *this; }
    template <class... T> Tensor to(T&&...) const { return *this; }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
    GenericPackedTensorAccessor<T, N, Traits, Index> packed_accessor() const {
        GenericPackedTensorAccessor<T, N, Traits, Index> made{data_ptr<T>()};
        for (size_t axis = 0; axis < N; ++axis) made.sizes_[axis] = shape.at(axis), made.strides_[axis] = stride(axis);
        return made;
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> auto packed_accessor32() const {
        return packed_accessor<T, N, Traits, int32_t>();
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits> auto packed_accessor64() const {
        return packed_accessor<T, N, Traits, int64_t>();
    }
    Tensor& zero_() { return cudaMemset(memory, 0, numel() * element_size()), *this; }
};
inline Tensor checked_empty(std::vector<int64_t> shape, ScalarType scalar) {
    Tensor made(nullptr, shape, scalar);
    cudaMalloc(&made.memory, made.numel() * made.element_size());
    return made;
}
inline Tensor empty(std::vector<int64_t> shape, TensorOptions options = {}) { return checked_empty(shape, options.scalar); }
inline Tensor zeros(std::vector<int64_t> shape, TensorOptions options = {}) { return empty(shape, options).zero_(); }
inline Tensor empty_like(const Tensor& like, TensorOptions = {}) { return checked_empty(like.shape, like.scalar); }
inline Tensor zeros_like(const Tensor& like, TensorOptions = {}) { return empty_like(like).zero_(); }
constexpr auto kCUDA = CUDA;
constexpr auto kCPU = CPU;
constexpr auto kFloat = ScalarType::Float, kFloat32 = ScalarType::Float, kHalf = ScalarType::Half;
constexpr auto kFloat16 = ScalarType::Half, kBFloat16 = ScalarType::BFloat16, kDouble = ScalarType::Double;
constexpr auto kFloat64 = ScalarType::Double, kInt = ScalarType::Int, kInt32 = ScalarType::Int;
constexpr auto kInt8 = ScalarType::Char, kChar = ScalarType::Char;
}  // namespace at

namespace torch {
using namespace at;
using Dtype = ScalarType;
inline TensorOptions dtype(ScalarType type) { return type; }
template <class... T> TensorOptions device(T&&...) { return {}; }
template <class T> constexpr ScalarType CppTypeToScalarType = scalar_of<T>::value;
}  // namespace torch
