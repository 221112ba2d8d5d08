#pragma once

// The shared memory of the block that runs.  Around every variable is a red zone: AddressSanitizer
// ends the program at a touch, and without it a write is found when the block ends.  Memory that
// nobody has written is NaN.

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

  void begin_block(size_t dynamic_bytes);
  // Null where the block has had as much as there is.
  void* take(size_t bytes, size_t alignment, const char* name);
  void* dynamic() const { return dynamic_; }
  // What was wrong, if anything.
  std::string end_block();

  const void* memory() const { return memory_.get(); }
  static constexpr size_t memory_bytes() { return 256 << 10; }  // with its red zones

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
  size_t end_ = 0, static_bytes_ = 0, dynamic_bytes_ = 0;
  void* dynamic_ = nullptr;
};

}  // namespace emulator
