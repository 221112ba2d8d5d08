#pragma once

// In builds for AddressSanitizer, what nobody holds of an arena is forbidden: free memory, and what
// rounding adds to a tensor.  A kernel that leaves its tensor ends the program there, if the host
// can reach the memory at all.  In other builds these functions do nothing.

#include <algorithm>
#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPOOL_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SPOOL_ADDRESS_SANITIZER 1
#endif
#if SPOOL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace spool {

#if SPOOL_ADDRESS_SANITIZER
constexpr bool bounds_are_checked = true;
inline void poison(const void* data, size_t bytes) { __asan_poison_memory_region(data, bytes); }
inline void unpoison(const void* data, size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
#else
constexpr bool bounds_are_checked = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
#endif

// An arena's memory before anybody holds some: its first part, as to forbid costs memory, too.
inline void poison_arena(const void* data, size_t bytes) {
  constexpr size_t most = size_t{256} << 20;
  poison(data, std::min(bytes, most));
}

}  // namespace spool
