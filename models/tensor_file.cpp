#include "spool/models/tensor_file.h"

#include <algorithm>
#include <set>
#include <vector>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// Of a host buffer, of which there are two at most.
constexpr size_t buffer_bytes = size_t{8} << 20;

using Buffer = std::vector<std::byte>;

bool is_floating(DType t) { return t == DType::f64 || t == DType::f32 || t == DType::bf16; }

template <class To, class From>
void convert(std::span<const std::byte> from, std::byte* to) {
  const auto* in = reinterpret_cast<const From*>(from.data());
  auto* out = reinterpret_cast<To*>(to);
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) out[i] = static_cast<To>(in[i]);
}

template <class To>
void convert_to(std::span<const std::byte> from, DType dtype, std::byte* to) {
  if (dtype == DType::f64) return convert<To, double>(from, to);
  if (dtype == DType::f32) return convert<To, float>(from, to);
  convert<To, bf16>(from, to);
}

void convert(std::span<const std::byte> in, DType from, DType to, std::byte* out) {
  if (to == DType::f64) return convert_to<double>(in, from, out);
  if (to == DType::f32) return convert_to<float>(in, from, out);
  convert_to<bf16>(in, from, out);
}

struct Extents {
  size_t rows, columns;
};

// In squares, so that neither side strides through memory for long.
template <class T>
void transpose(const std::byte* from, Extents e, std::byte* to) {
  constexpr size_t side = 32;
  const auto* in = reinterpret_cast<const T*>(from);
  auto* out = reinterpret_cast<T*>(to);
  for (size_t r0 = 0; r0 < e.rows; r0 += side) {
    for (size_t c = 0; c < e.columns; ++c) {
      const size_t end = std::min(r0 + side, e.rows);
      for (size_t r = r0; r < end; ++r) out[c * e.rows + r] = in[r * e.columns + c];
    }
  }
}

void transpose(const std::byte* in, Extents e, size_t element, std::byte* out) {
  if (element == 2) return transpose<uint16_t>(in, e, out);
  if (element == 4) return transpose<uint32_t>(in, e, out);
  transpose<uint64_t>(in, e, out);
}

// A matrix that is (R, C) in memory and (C, R) in the file is moved a band of rows in memory at a
// time, of which every row in the file has a piece.
struct Bands {
  size_t R, C, rows;

  Bands(const Shape& shape, size_t element_bytes)
      : R(static_cast<size_t>(shape[0])), C(static_cast<size_t>(shape[1])) {
    rows = std::max<size_t>(1, buffer_bytes / std::max<size_t>(1, C * element_bytes));
    rows = std::min(rows, R);
  }

  // work(first row, rows).
  template <class Work>
  void for_each(const Work& work) const {
    if (C == 0) return;
    for (size_t r = 0; r < R; r += rows) work(r, std::min(rows, R - r));
  }
};

void save_transposed(SafetensorsWriter& file, const StoredTensor& stored, const Tensor& t) {
  const size_t element = size_of(t.dtype());
  const Bands bands(t.shape(), element);
  Buffer band(bands.rows * bands.C * element), pieces(band.size());
  bands.for_each([&](size_t first, size_t rows) {
    const size_t piece = rows * element;
    read_bytes(t, first * bands.C * element, std::span(band).first(piece * bands.C));
    transpose(band.data(), {rows, bands.C}, element, pieces.data());
    for (size_t c = 0; c < bands.C; ++c) {
      file.write(stored, (c * bands.R + first) * element,
                 std::span(pieces).subspan(c * piece, piece));
    }
  });
}

void save_as_it_is(SafetensorsWriter& file, const StoredTensor& stored, const Tensor& t) {
  Buffer buffer(std::min(buffer_bytes, t.nbytes()));
  for (size_t begin = 0; begin < t.nbytes(); begin += buffer.size()) {
    const auto bytes = std::span(buffer).first(std::min(buffer.size(), t.nbytes() - begin));
    read_bytes(t, begin, bytes);
    file.write(stored, begin, bytes);
  }
}

void load_transposed(const SafetensorsReader& file, const StoredTensor& stored, const Tensor& t) {
  const size_t element = size_of(stored.spec.dtype), result = size_of(t.dtype());
  const Bands bands(t.shape(), std::max(element, result));
  Buffer pieces(bands.rows * bands.C * std::max(element, result)), band(pieces.size());
  bands.for_each([&](size_t first, size_t rows) {
    const size_t piece = rows * element;
    for (size_t c = 0; c < bands.C; ++c) {
      file.read(stored, (c * bands.R + first) * element,
                std::span(pieces).subspan(c * piece, piece));
    }
    transpose(pieces.data(), {bands.C, rows}, element, band.data());
    if (t.dtype() != stored.spec.dtype) {
      convert(std::span(band).first(piece * bands.C), stored.spec.dtype, t.dtype(), pieces.data());
      band.swap(pieces);
    }
    write_bytes(t, first * bands.C * result, std::span(band).first(rows * bands.C * result));
  });
}

void load_as_it_is(const SafetensorsReader& file, const StoredTensor& stored, const Tensor& t) {
  const size_t element = size_of(stored.spec.dtype), result = size_of(t.dtype());
  const size_t numel = static_cast<size_t>(t.numel());
  const size_t step = std::min(numel, buffer_bytes / std::max(element, result));
  Buffer in(step * element), out(element == result ? 0 : step * result);
  for (size_t begin = 0; begin < numel; begin += step) {
    const size_t count = std::min(step, numel - begin);
    const auto read = std::span(in).first(count * element);
    file.read(stored, begin * element, read);
    if (t.dtype() == stored.spec.dtype) {
      write_bytes(t, begin * result, read);
    } else {
      convert(read, stored.spec.dtype, t.dtype(), out.data());
      write_bytes(t, begin * result, std::span(out).first(count * result));
    }
  }
}

Shape stored_shape(const NamedTensor& named) {
  const Shape& shape = named.tensor.shape();
  if (!named.transposed) return shape;
  check(shape.rank() == 2, "tensor \"", named.name, "\": ", shape,
        " is to be stored transposed, and is no matrix");
  return {shape[1], shape[0]};
}

// What the file has for a tensor, which must be what the tensor can take.
const StoredTensor& find_fitting(const SafetensorsReader& file, const NamedTensor& named) {
  const StoredTensor* stored = file.find(named.name);
  check_file(stored, file.name(), "has no tensor \"", named.name, "\", which is to be ",
             named.tensor.spec());
  const Shape wanted = stored_shape(named);
  check_file(stored->spec.shape == wanted, file.name(), "tensor \"", named.name, "\" is ",
             stored->spec.shape, ", and ", wanted, " is expected",
             named.transposed ? ", stored as (in, out)" : "");
  const DType from = stored->spec.dtype, to = named.tensor.dtype();
  check_file(from == to || (is_floating(from) && is_floating(to)), file.name(), "tensor \"",
             named.name, "\" is ", name(from), ", which cannot become ", name(to));
  return *stored;
}

void check_no_surplus(const SafetensorsReader& file, std::span<const NamedTensor> tensors,
                      const std::function<bool(std::string_view)>& ignored) {
  std::set<std::string_view> wanted;
  for (const NamedTensor& named : tensors) wanted.insert(named.name);
  for (const StoredTensor& stored : file.tensors()) {
    check_file(wanted.contains(stored.name) || (ignored && ignored(stored.name)), file.name(),
               "tensor \"", stored.name, "\", ", stored.spec, ", is none of the ", wanted.size(),
               " that are expected");
  }
}

}  // namespace

void save_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                  const Metadata& metadata) {
  std::vector<StoredTensor> entries;
  for (const NamedTensor& named : tensors) {
    entries.push_back({named.name, {stored_shape(named), named.tensor.dtype()}});
  }
  SafetensorsWriter file(path, std::move(entries), metadata);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto save = tensors[i].transposed ? save_transposed : save_as_it_is;
    save(file, file.tensors()[i], tensors[i].tensor);
  }
  file.finish();
}

void load_tensors(const SafetensorsReader& file, std::span<const NamedTensor> tensors,
                  const std::function<bool(std::string_view)>& ignored) {
  std::vector<const StoredTensor*> stored;
  for (const NamedTensor& named : tensors) stored.push_back(&find_fitting(file, named));
  check_no_surplus(file, tensors, ignored);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto load = tensors[i].transposed ? load_transposed : load_as_it_is;
    load(file, *stored[i], tensors[i].tensor);
  }
}

}  // namespace spool
