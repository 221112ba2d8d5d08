#include "spool/models/formats/tensor_contents.h"

#include <algorithm>
#include <vector>

namespace spool {

TensorContents TensorContents::slice(Range rows) const {
  if (tensor_) return tensor_.slice(rows);
  const Spec spec{spec_.shape.with(0, rows.size()), spec_.dtype};
  const size_t row = rows.size() > 0 ? spec.nbytes() / static_cast<size_t>(rows.size()) : 0;
  const size_t first = static_cast<size_t>(rows.begin) * row;
  return {
      spec,
      [read = read_, first](size_t begin, std::span<std::byte> out) { read(first + begin, out); },
      [write = write_, first](size_t begin, std::span<const std::byte> in) {
        write(first + begin, in);
      }};
}

void TensorContents::read(size_t begin, std::span<std::byte> out) const {
  if (tensor_) return read_bytes(tensor_, begin, out);
  for (size_t at = 0; at < out.size(); at += max_range) {
    read_(begin + at, out.subspan(at, std::min(max_range, out.size() - at)));
  }
}

void TensorContents::write(size_t begin, size_t bytes, const Stream::Fill& fill) const {
  if (tensor_) return write_bytes(tensor_, begin, bytes, fill);
  std::vector<std::byte> all(bytes);
  fill(all);
  for (size_t at = 0; at < bytes; at += max_range) {
    write_(begin + at, std::span(all).subspan(at, std::min(max_range, bytes - at)));
  }
}

}  // namespace spool
