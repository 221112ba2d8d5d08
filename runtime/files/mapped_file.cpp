#include "spool/runtime/files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace spool {

MappedFile::MappedFile(const File& file) : size_(file.size()) {
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) fail_file(file.name(), "mapped into memory", errno);
  data_ = static_cast<const std::byte*>(address);
}

void MappedFile::forget(size_t end) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole = end / page * page;
  if (whole > 0) ::madvise(const_cast<std::byte*>(data_), whole, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace spool
