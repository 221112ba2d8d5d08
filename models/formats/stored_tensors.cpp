#include "spool/models/formats/stored_tensors.h"

#include <algorithm>
#include <iterator>
#include <ostream>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

struct TypeEntry {
  std::string_view name;
  size_t size;
};
// In the order of StoredType.
constexpr TypeEntry types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I32", 4},
                               {"U16", 2}, {"I64", 8}, {"U64", 8},  {"U32", 4},     {"I16", 2},
                               {"U8", 1},  {"I8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
static_assert(std::size(types) == static_cast<size_t>(StoredType::F8_E5M2) + 1);

constexpr std::pair<DType, StoredType> engine_types[] = {{DType::f64, StoredType::F64},
                                                         {DType::f32, StoredType::F32},
                                                         {DType::bf16, StoredType::BF16},
                                                         {DType::i32, StoredType::I32},
                                                         {DType::u16, StoredType::U16}};

}  // namespace

std::string_view name(StoredType type) { return types[static_cast<size_t>(type)].name; }
size_t size_of(StoredType type) { return types[static_cast<size_t>(type)].size; }

std::optional<StoredType> parse_stored_type(std::string_view text) {
  const auto* found = std::ranges::find(types, text, &TypeEntry::name);
  if (found == std::end(types)) return {};
  return static_cast<StoredType>(found - types);
}

StoredType stored(DType dtype) {
  return std::ranges::find(engine_types, dtype, &std::pair<DType, StoredType>::first)->second;
}

std::optional<DType> loaded(StoredType type) {
  const auto* found = std::ranges::find(engine_types, type, &std::pair<DType, StoredType>::second);
  if (found == std::end(engine_types)) return {};
  return found->first;
}

std::ostream& operator<<(std::ostream& out, const StoredSpec& spec) {
  return out << name(spec.type) << " " << spec.shape;
}

TensorReader::TensorReader(TensorFileStart start)
    : file_(std::move(start.file)),
      data_begin_(start.data_begin),
      tensors_(std::move(start.tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const StoredTensor* TensorReader::find(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void TensorReader::read(const StoredTensor& t, uint64_t begin, std::span<std::byte> out) const {
  const uint64_t nbytes = t.spec.nbytes();
  check(out.size() <= nbytes && begin <= nbytes - out.size(), name(), ": ", out.size(),
        " bytes were asked for from byte ", begin, " of tensor \"", t.name, "\", ", t.spec);
  file_.read(data_begin_ + t.begin + begin, out);
}

TensorWriter::TensorWriter(TensorFileStart start)
    : file_(std::move(start.file)),
      data_begin_(start.data_begin),
      tensors_(std::move(start.tensors)) {
  for (const StoredTensor& t : tensors_) data_bytes_ += t.spec.nbytes();
}

void TensorWriter::write(const StoredTensor& t, uint64_t begin, std::span<const std::byte> bytes) {
  const uint64_t nbytes = t.spec.nbytes();
  check(bytes.size() <= nbytes && begin <= nbytes - bytes.size(), name(), ": ", bytes.size(),
        " bytes were written at byte ", begin, " of tensor \"", t.name, "\", ", t.spec);
  file_.write(data_begin_ + t.begin + begin, bytes);
  written_ += bytes.size();
}

void TensorWriter::finish() {
  check(written_ == data_bytes_, name(), ": ", written_, " bytes were written of ", data_bytes_);
  file_.sync();
  file_.close();
}

}  // namespace spool
