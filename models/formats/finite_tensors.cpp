#include "spool/models/formats/finite_tensors.h"

#include <algorithm>
#include <cmath>

#include "spool/models/formats/convert_elements.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

void check_tensor(const TensorReader& file, const StoredTensor& t) {
  constexpr size_t max_elements = size_t{1} << 16;  // at a time
  const auto count = static_cast<size_t>(t.spec.shape.numel()), bytes = size_of(t.spec.type);
  std::vector<std::byte> read;
  std::vector<float> values;
  for (size_t begin = 0; begin < count; begin += max_elements) {
    values.resize(std::min(max_elements, count - begin));
    read.resize(values.size() * bytes);
    file.read(t, begin * bytes, read);
    convert_elements(read, t.spec.type, DType::f32, reinterpret_cast<std::byte*>(values.data()));
    const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    check_file(bad == values.end(), file.name(), "tensor ", excerpt(t.name), ": element ",
               begin + static_cast<size_t>(bad - values.begin()),
               " is not finite, so the file is of no use; take an earlier or another one");
  }
}

}  // namespace

void check_finite(const TensorReader& file) {
  for (const StoredTensor& t : file.tensors()) {
    if (is_floating(t.spec.type)) check_tensor(file, t);
  }
}

}  // namespace spool
