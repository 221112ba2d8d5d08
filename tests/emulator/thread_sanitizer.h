#pragma once

// What ThreadSanitizer is told in programs that have it, and nothing in others: the emulator itself
// is not compiled for it.
//
// The work of all streams is one track, the device, whichever thread of the host runs it, and each
// fiber is another.  Tracks are ordered as CUDA orders work: work comes after what the host did
// before it enqueued it, and the host is behind the device where it waited for it.  So what the
// host reads or writes while a stream or a host function may use it is found.

#include <cstddef>

extern "C" {
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void*);
[[gnu::weak]] void __tsan_switch_to_fiber(void*, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
}

namespace emulator {

inline bool has_thread_sanitizer() { return __tsan_create_fiber != nullptr; }

inline void* running_track() {
  return has_thread_sanitizer() ? __tsan_get_current_fiber() : nullptr;
}
inline void* make_track() { return has_thread_sanitizer() ? __tsan_create_fiber(0) : nullptr; }
inline void end_track(void* track) {
  if (track) __tsan_destroy_fiber(track);
}
// What follows is the track's; if ordered, after what came before.
inline void go_on_as(void* track, bool ordered) {
  constexpr unsigned no_order = 1;
  if (track && track != running_track()) __tsan_switch_to_fiber(track, ordered ? 0 : no_order);
}

// What follows acquire() comes after what was before the release() of the same place.
inline void release(void* place) {
  if (has_thread_sanitizer()) __tsan_release(place);
}
inline void acquire(void* place) {
  if (has_thread_sanitizer()) __tsan_acquire(place);
}

// Runs work(data), which throws nothing, as the device: on a stack of its own, as that of the
// thread is the host's.  Without ThreadSanitizer, just runs it.
void as_device(void (*work)(void*), void* data);

// What follows comes after all that the device has done.
void be_behind_device();

}  // namespace emulator
