#include "spool/models/formats/convert_elements.h"

#include <algorithm>
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

void transpose_elements(const Elements& e, std::byte* out, size_t out_row) {
  if (e.bytes == 1) return transpose<uint8_t>(e, out, out_row);
  if (e.bytes == 2) return transpose<uint16_t>(e, out, out_row);
  if (e.bytes == 4) return transpose<uint32_t>(e, out, out_row);
  transpose<uint64_t>(e, out, out_row);
}

}  // namespace spool
