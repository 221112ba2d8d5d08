#pragma once

// The shared memory of the running block.  A red zone surrounds every variable: AddressSanitizer
// ends the program at an access, and without it a write is found when the block ends.  Unwritten
// memory is NaN.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

class SharedMemory {
 public:
  static constexpr size_t max_bytes = 227 << 10, max_static_bytes = 48 << 10;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Before a launch: what a block of the kernel may have in all, and where to keep the most that
  // one has declared.
  void begin_kernel(size_t max, size_t& declared) {
    max_ = max;
    declared_ = &declared;
  }
  size_t max() const { return max_; }
  void begin_block(size_t dynamic_bytes);
  // Null if the block has no memory left.
  void* take(size_t bytes, size_t alignment, const char* name);
  void* dynamic() const { return dynamic_; }
  // The error, if there is one.
  std::string end_block();

  const void* memory() const { return memory_.get(); }
  static constexpr size_t memory_bytes() { return 256 << 10; }  // red zones included

 private:
  struct Variable {
    unsigned char* data;
    size_t bytes;
    const char* name;
  };

  unsigned char* place(size_t bytes, size_t alignment, const char* name);
  std::string damage();

  std::unique_ptr<unsigned char[]> memory_;
  std::vector<Variable> variables_;
  size_t end_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0, max_ = max_bytes;
  size_t* declared_ = nullptr;
  void* dynamic_ = nullptr;
};

}  // namespace emulator
