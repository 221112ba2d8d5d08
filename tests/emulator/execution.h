#pragma once

// How a kernel runs: its blocks one after the other, the threads of a block as fibers that take
// turns at barriers and warp operations, in an order that tests choose.  A kernel that breaks a
// rule of CUDA ends with an Error that names the file, the line, the block and the thread.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

#include "device_types.h"

// A reference to shared memory of type T: EMULATOR_SHARED(float[32], sums);
#define EMULATOR_SHARED(T, name)                        \
  static emulator::SharedVariable name##_in_this_block; \
  auto& name = name##_in_this_block.get<T>(#name, emulator::Location::here())

namespace emulator {

struct Location {
  const char* file = "";
  int line = 0;
  static Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The order in which lanes, warps and blocks take turns.
enum class Order { forward, reverse, random };

struct Config {
  Order order = Order::forward;
  uint64_t seed = 1;  // of the random order
  bool strict =
      true;  // a thread that leaves before a barrier, which hardware tolerates, is an error
};
Config& config();

// Ends the kernel.
[[noreturn]] void fail(const std::string& what, Location where);

void* dynamic_shared();

// Shared memory that a kernel declares: every block gets its own, filled with NaN.
class SharedVariable {
 public:
  template <class T>
  T& get(const char* name, Location where) {
    return *static_cast<T*>(get(sizeof(T), alignof(T), name, where));
  }

 private:
  void* get(size_t bytes, size_t alignment, const char* name, Location where);

  uint64_t block_ = 0;
  void* memory_ = nullptr;
};

void run(void (*kernel)(void*), void* arguments, dim3 grid, dim3 block, size_t dynamic_bytes);

// Runs kernel(arguments...) to completion; throws Error if it fails.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes, const A&... all) {
  static_assert((!std::is_reference_v<P> && ...), "parameters of a kernel are passed by value");
  static_assert((std::is_trivially_copyable_v<P> && ...), "and are trivially copyable");
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  } call{kernel, std::tuple<P...>(static_cast<P>(all)...)};
  const auto thread = [](void* context) {
    const Call& c = *static_cast<const Call*>(context);
    std::apply(c.kernel, c.arguments);
  };
  run(thread, &call, grid, block, dynamic_bytes);
}

}  // namespace emulator
