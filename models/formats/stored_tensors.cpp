#include "spool/models/formats/stored_tensors.h"

#include <algorithm>
#include <iterator>
#include <ostream>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

static_assert(enumerator_names<StoredType>.size() ==
              size_t{1} + static_cast<size_t>(StoredType::F8_E5M2));

constexpr std::pair<DType, StoredType> engine_types[] = {
    {DType::f64, StoredType::F64}, {DType::f32, StoredType::F32}, {DType::bf16, StoredType::BF16},
    {DType::i32, StoredType::I32}, {DType::u16, StoredType::U16}, {DType::f16, StoredType::F16},
    {DType::i8, StoredType::I8}};
static_assert(std::size(engine_types) == enumerator_names<DType>.size());

}  // namespace

size_t size_of(StoredType type) {
  switch (type) {
    case StoredType::F64:
    case StoredType::I64:
    case StoredType::U64:
      return 8;
    case StoredType::F32:
    case StoredType::I32:
    case StoredType::U32:
      return 4;
    case StoredType::F16:
    case StoredType::BF16:
    case StoredType::U16:
    case StoredType::I16:
      return 2;
    default:
      return 1;
  }
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

uint64_t TensorReader::bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.file.size();
  return sum;
}

TensorReader::TensorReader(TensorFileStart start) : name_(start.file.name()) {
  add(std::move(start));
}

TensorReader::TensorReader(std::string name, std::vector<TensorFileStart> files)
    : name_(std::move(name)) {
  for (TensorFileStart& start : files) add(std::move(start));
}

void TensorReader::add(TensorFileStart start) {
  for (StoredTensor& t : start.tensors) {
    t.part = parts_.size();
    const auto [known, is_new] = index_.emplace(t.name, tensors_.size());
    check_file(is_new, start.file.name(), "tensor \"", t.name, "\" is also in ",
               is_new ? name_ : parts_[tensors_[known->second].part].file.name());
    tensors_.push_back(std::move(t));
  }
  parts_.push_back({std::move(start.file), start.data_begin});
}

const StoredTensor* TensorReader::find(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void TensorReader::read(const StoredTensor& t, uint64_t begin, std::span<std::byte> out) const {
  const uint64_t nbytes = t.spec.nbytes();
  check(out.size() <= nbytes && begin <= nbytes - out.size(), name(), ": ", out.size(),
        " bytes from byte ", begin, " are outside tensor \"", t.name, "\", ", t.spec);
  const Part& part = parts_[t.part];
  part.file.read(part.data_begin + t.begin + begin, out);
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
        " bytes at byte ", begin, " are outside tensor \"", t.name, "\", ", t.spec);
  file_.write(data_begin_ + t.begin + begin, bytes);
  written_ += bytes.size();
}

void TensorWriter::finish() {
  check(written_ == data_bytes_, name(), ": ", written_, " of ", data_bytes_,
        " bytes were written");
  file_.sync();
  file_.close();
}

}  // namespace spool
