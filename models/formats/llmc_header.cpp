#include "spool/models/formats/llmc_header.h"

#include <bit>

namespace spool {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

LlmcHeader::LlmcHeader(const File& file, const char* kind) : file_(file.name()) {
  const uint64_t size = file.size();
  check_file(size >= bytes, file_, "is ", size, " bytes long, too short for the header of ", kind,
             ", which has ", bytes);
  file.read(0, std::as_writable_bytes(std::span(words_)));
}

void LlmcHeader::write(File& file) const { file.write(0, std::as_bytes(std::span(words_))); }

bool has_llmc_magic(const File& file, int32_t magic) {
  int32_t first = 0;
  if (file.size() < sizeof(first)) return false;
  file.read(0, std::as_writable_bytes(std::span(&first, 1)));
  return first == magic;
}

}  // namespace spool
