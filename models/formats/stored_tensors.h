#pragma once

// Tensors in one or several files of any format: names, types, shapes, and the offsets of their
// bytes.  They are read and written in pieces, so no tensor needs to be in host memory as a whole.
// A reader's constructor checks everything that the files say about themselves against their sizes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/files/file.h"
#include "spool/runtime/names.h"
#include "spool/runtime/shape.h"

namespace spool {

// Types in files, named as in safetensors.  Tensors of types that the engine lacks cannot be
// loaded.
enum class StoredType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  I32,
  U16,
  I64,
  U64,
  U32,
  I16,
  U8,
  I8,
  BOOL,
  F8_E4M3,
  F8_E5M2
};
template <>
inline constexpr std::array enumerator_names<StoredType>{
    "F64", "F32", "F16", "BF16", "I32",  "U16",     "I64",    "U64",
    "U32", "I16", "U8",  "I8",   "BOOL", "F8_E4M3", "F8_E5M2"};

size_t size_of(StoredType);  // bytes
StoredType stored(DType);
// Nothing if the engine has no such type.
std::optional<DType> loaded(StoredType);

struct StoredSpec {
  Shape shape = {};
  StoredType type = StoredType::F32;

  StoredSpec() = default;
  StoredSpec(const Shape& s, StoredType t) : shape(s), type(t) {}
  StoredSpec(const Shape& s, DType t) : shape(s), type(stored(t)) {}
  StoredSpec(const Spec& s) : shape(s.shape), type(stored(s.dtype)) {}

  uint64_t nbytes() const { return static_cast<uint64_t>(shape.numel()) * size_of(type); }
  friend bool operator==(const StoredSpec&, const StoredSpec&) = default;
};
std::ostream& operator<<(std::ostream&, const StoredSpec&);

struct StoredTensor {
  std::string name;
  StoredSpec spec = {};
  uint64_t begin = 0;  // byte offset in the data; a writer sets it
  size_t part = 0;     // index of the file, if there are several
};

// An open file and its tensors, whose offsets count from data_begin.
struct TensorFileStart {
  File file;
  uint64_t data_begin = 0;
  std::vector<StoredTensor> tensors = {};
};

// Called with the number of bytes of a file that are read or written.
using FileProgress = std::function<void(size_t done, size_t total)>;

class TensorReader {
 public:
  const std::string& name() const { return name_; }
  // The size of all files.
  uint64_t bytes() const;
  // In the order of their bytes, file by file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null if there is no tensor of this name.
  const StoredTensor* find(std::string_view tensor) const;
  // Reads bytes [begin, begin + out.size()) of one tensor.
  void read(const StoredTensor&, uint64_t begin, std::span<std::byte> out) const;

 protected:
  explicit TensorReader(TensorFileStart);
  // Several files, each tensor in one of them; `name` is for messages.
  TensorReader(std::string name, std::vector<TensorFileStart>);

 private:
  struct Part {
    File file;
    uint64_t data_begin = 0;
  };
  void add(TensorFileStart);

  std::string name_;
  std::vector<Part> parts_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

class TensorWriter {
 public:
  const std::string& name() const { return file_.name(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Writes bytes of one tensor, in any order, each byte once.
  void write(const StoredTensor&, uint64_t begin, std::span<const std::byte> bytes);
  // Syncs and closes the file; throws if bytes are missing.  Without it, readers may refuse the
  // file, and a power cut may lose it.
  void finish();

 protected:
  explicit TensorWriter(TensorFileStart);

 private:
  File file_;
  uint64_t data_begin_;
  std::vector<StoredTensor> tensors_;
  uint64_t data_bytes_ = 0, written_ = 0;
};

}  // namespace spool
