// A library for dlpack_test.py: tensors of a CpuStream, lent to Python and taken over from it.

#include "spool/runtime/dlpack.h"

#include <numeric>
#include <string>

#include "spool/runtime/cpu/stream.h"

using namespace spool;

namespace {

CpuStream& stream() {
  static CpuStream only(1 << 20, 1);
  return only;
}

std::string last_error;

template <class T>
Tensor counting(const Shape& shape) {
  std::vector<T> values;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      values.push_back(static_cast<T>(i));
    } else {
      values.push_back(static_cast<T>(0.5f * static_cast<float>(i)));
    }
  }
  return make_tensor<T>(shape, values, stream());
}

template <class T>
double sum(const Tensor& t) {
  double total = 0;
  for (const T x : read<T>(t)) total += static_cast<double>(x);
  return total;
}

// Calls f<T>() for the type of that name.
template <class F>
auto with_type(DType type, const F& f) {
  switch (type) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::u16:
      return f.template operator()<uint16_t>();
    case DType::i8:
      return f.template operator()<int8_t>();
    default:
      return f.template operator()<float>();
  }
}

}  // namespace

extern "C" {

// A matrix whose element i is i, or i / 2 of a floating type.
DLManagedTensor* lend(const char* type, int64_t rows, int64_t columns) {
  const Shape shape{rows, columns};
  return to_dlpack(with_type(*parse<DType>(type), [&]<class T>() { return counting<T>(shape); }));
}

// Takes a tensor over, writes the sum of its values, and returns it; or else returns the error.
const char* take_over(DLManagedTensor* tensor, double* total) {
  try {
    const Tensor t = from_dlpack(tensor, stream());
    *total = with_type(t.dtype(), [&]<class T>() { return sum<T>(t); });
    return nullptr;
  } catch (const Error& e) {
    last_error = e.what();
    return last_error.c_str();
  }
}

// Bytes that are live in the stream's arena, and outside of it.
size_t live() { return stream().memory().live; }
size_t external() { return stream().memory().external; }
}
