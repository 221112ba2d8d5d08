#include "spool/models/formats/convert_elements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "spool/runtime/dtype.h"

namespace spool {
namespace {

template <class To, class From>
void convert(std::span<const std::byte> from, std::byte* to) {
  const auto* in = reinterpret_cast<const From*>(from.data());
  auto* out = reinterpret_cast<To*>(to);
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) out[i] = static_cast<To>(in[i]);
}

template <class To>
void convert_to(std::span<const std::byte> in, StoredType from, std::byte* out) {
  switch (from) {
    case StoredType::F64:
      return convert<To, double>(in, out);
    case StoredType::F32:
      return convert<To, float>(in, out);
    case StoredType::F16:
      return convert<To, f16>(in, out);
    default:
      return convert<To, bf16>(in, out);
  }
}

// The numeric value of an element, in f64 or f32.
inline double number(double x) { return x; }
inline float number(float x) { return x; }
inline float number(bf16 x) { return static_cast<float>(x); }
inline float number(f16 x) { return static_cast<float>(x); }

template <class T>
std::optional<size_t> find_not_finite(std::span<const std::byte> bytes) {
  const auto* x = reinterpret_cast<const T*>(bytes.data());
  const size_t count = bytes.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(number(x[i]))) [[unlikely]]
      return i;
  }
  return {};
}

// Transposes squares through a compact buffer: the rows of a large matrix are often a power of two
// apart and would evict one another from the cache.
template <class T>
void transpose(const Elements& e, std::byte* to, size_t out_row) {
  constexpr size_t side = 32;
  const auto* in = reinterpret_cast<const T*>(e.data);
  auto* out = reinterpret_cast<T*>(to);
  T square[side][side];
  for (size_t c0 = 0; c0 < e.columns; c0 += side) {
    const size_t width = std::min(side, e.columns - c0);
    for (size_t r0 = 0; r0 < e.rows; r0 += side) {
      const size_t height = std::min(side, e.rows - r0);
      for (size_t r = 0; r < height; ++r) {
        const T* row = in + (r0 + r) * e.columns + c0;
        for (size_t c = 0; c < width; ++c) square[c][r] = row[c];
      }
      for (size_t c = 0; c < width; ++c) {
        std::copy_n(square[c], height, out + (c0 + c) * out_row + r0);
      }
    }
  }
}

}  // namespace

bool is_floating(StoredType t) {
  return t == StoredType::F64 || t == StoredType::F32 || t == StoredType::F16 ||
         t == StoredType::BF16;
}

void convert_elements(std::span<const std::byte> in, StoredType from, DType to, std::byte* out) {
  if (to == DType::f64) return convert_to<double>(in, from, out);
  if (to == DType::f32) return convert_to<float>(in, from, out);
  if (to == DType::f16) return convert_to<f16>(in, from, out);
  convert_to<bf16>(in, from, out);
}

std::optional<size_t> first_not_finite(std::span<const std::byte> x, StoredType type) {
  if (type == StoredType::F64) return find_not_finite<double>(x);
  if (type == StoredType::F32) return find_not_finite<float>(x);
  if (type == StoredType::F16) return find_not_finite<f16>(x);
  return find_not_finite<bf16>(x);
}

double element_at(std::span<const std::byte> x, StoredType type, size_t index) {
  const size_t bytes = size_of(type);
  double element = 0;
  convert_elements(x.subspan(index * bytes, bytes), type, DType::f64,
                   reinterpret_cast<std::byte*>(&element));
  return element;
}

std::optional<size_t> first_overflow(std::span<const std::byte> in, StoredType from,
                                     std::span<const std::byte> out, DType to) {
  const size_t of_out = size_of(to);
  if (size_of(from) < of_out) return {};
  size_t begin = 0;
  while (const auto bad = first_not_finite(out.subspan(begin * of_out), stored(to))) {
    begin += *bad;
    if (std::isfinite(element_at(in, from, begin))) return begin;
    ++begin;
  }
  return {};
}

void transpose_elements(const Elements& e, std::byte* out, size_t out_row) {
  if (e.bytes == 1) return transpose<uint8_t>(e, out, out_row);
  if (e.bytes == 2) return transpose<uint16_t>(e, out, out_row);
  if (e.bytes == 4) return transpose<uint32_t>(e, out, out_row);
  transpose<uint64_t>(e, out, out_row);
}

}  // namespace spool
