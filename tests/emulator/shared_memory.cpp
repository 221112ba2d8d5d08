#include "shared_memory.h"

#include <algorithm>
#include <cstring>

#include "sanitizer.h"

namespace emulator {
namespace {

constexpr size_t red_zone = 64;
constexpr unsigned char untouched = 0xA5;
constexpr unsigned char unwritten = 0xFF;  // NaN as a float and as a bfloat16, -1 as an integer

}  // namespace

SharedMemory::SharedMemory() : memory_(new unsigned char[memory_bytes()]) {
  std::memset(memory_.get(), untouched, memory_bytes());
  poison(memory_.get(), memory_bytes());
}

SharedMemory::~SharedMemory() { unpoison(memory_.get(), memory_bytes()); }

void SharedMemory::begin_block(size_t dynamic_bytes) {
  constexpr size_t alignment = 128;
  static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
  dynamic_ = dynamic_bytes ? place(dynamic_bytes, alignment, "dynamic") : nullptr;
}

void* SharedMemory::take(size_t bytes, size_t alignment, const char* name) {
  static_bytes_ += bytes;
  if (declared_) *declared_ = std::max(*declared_, static_bytes_);
  if (static_bytes_ > max_static_bytes || static_bytes_ + dynamic_bytes_ > max_) {
    return nullptr;
  }
  return place(bytes, alignment, name);
}

unsigned char* SharedMemory::place(size_t bytes, size_t alignment, const char* name) {
  const size_t step = std::max<size_t>(alignment, 16);
  const auto start = reinterpret_cast<uintptr_t>(memory_.get());
  const size_t at = (start + end_ + red_zone + step - 1) / step * step - start;
  if (at + bytes + red_zone > memory_bytes()) return nullptr;
  unsigned char* data = memory_.get() + at;
  unpoison(data, bytes);
  std::memset(data, unwritten, bytes);
  end_ = at + bytes;
  variables_.push_back({data, bytes, name});
  return data;
}

std::string SharedMemory::end_block() {
  std::string found = finds_bad_addresses ? "" : damage();
  for (const Variable& v : variables_) {
    std::memset(v.data, untouched, v.bytes);
    poison(v.data, (v.bytes + 7) / 8 * 8);
  }
  variables_.clear();
  end_ = 0;
  return found;
}

// Restores the red zones; the error names the variable before the first one that was written.
std::string SharedMemory::damage() {
  std::string found;
  unsigned char* from = memory_.get();
  const char* name = "the first variable";
  const auto examine = [&](unsigned char* to) {
    const auto touched = [](unsigned char byte) { return byte != untouched; };
    if (found.empty() && std::any_of(from, to, touched)) {
      found = std::string("out-of-bounds write to shared memory near '") + name + "'";
    }
    std::fill(from, to, untouched);
  };
  for (const Variable& v : variables_) {
    examine(v.data);
    from = v.data + v.bytes;
    name = v.name;
  }
  examine(std::min(from + red_zone, memory_.get() + memory_bytes()));
  return found;
}

}  // namespace emulator
