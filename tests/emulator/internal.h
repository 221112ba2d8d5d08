#pragma once
#include <cstdint>
#include <string>
namespace emulator {
#ifdef EMULATOR_RACE
#define EMULATOR_RACE_ON 1
void race_launch();
void race_block(uint64_t serial);
void race_thread(int tid, int warp);
void race_barrier();
void race_stack(const char* lo, size_t n);
void race_warp(int warp);
void race_shared(const char* p, size_t n);
std::string race_take_error();
#else
#define EMULATOR_RACE_ON 0
inline void race_launch() {}
inline void race_block(uint64_t) {}
inline void race_thread(int, int) {}
inline void race_barrier() {}
inline void race_stack(const char*, size_t) {}
inline void race_warp(int) {}
inline void race_shared(const char*, size_t) {}
inline std::string race_take_error() { return {}; }
inline void race_atomic(const void*, size_t, void*) {}
#endif
}  // namespace emulator
