#include "race_checker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "text.h"

extern "C" char __executable_start;

namespace emulator {
namespace {

constexpr uint16_t warp_of(uint16_t thread) { return thread / warpSize; }

// "file:line" of code, if the system's tools know it.
std::string place(uint32_t code) {
  char text[512] = "";
  std::snprintf(text, sizeof text, "addr2line -e /proc/%d/exe 0x%x 2>/dev/null", ::getpid(),
                code - 1);
  if (FILE* said = ::popen(text, "r")) {
    if (!std::fgets(text, sizeof text, said)) text[0] = 0;
    ::pclose(said);
  }
  text[std::strcspn(text, " \n")] = 0;
  if (text[0] && text[0] != '?') return text;
  std::snprintf(text, sizeof text, "address 0x%x", code - 1);
  return text;
}

}  // namespace

RaceChecker& race_checker() {
  static RaceChecker checker;
  return checker;
}

namespace {
const bool watching = (watcher = &race_checker());
}

void RaceChecker::memory_made(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  memories_[begin] = begin + bytes;
}

void RaceChecker::memory_gone(const void* memory) {
  memories_.erase(reinterpret_cast<uintptr_t>(memory));
  recent_begin_ = recent_end_ = 0;
  pages_.clear();
  std::ranges::fill(known_, Known{});
}

void RaceChecker::block_begins(const void* shared, size_t shared_bytes) {
  ++block_;
  shared_ = reinterpret_cast<uintptr_t>(shared);
  shared_bytes_ = shared_bytes;
  barriers_ = 0;
  std::ranges::fill(warp_barriers_, uint16_t{0});
}

void RaceChecker::thread_runs(int thread) {
  thread_ = thread;
  running_ = true;
}

std::string RaceChecker::block_ends() {
  running_ = false;
  const std::unique_ptr<Race> race = std::exchange(found_, nullptr);
  return race ? race->sentence() : "";
}

bool RaceChecker::of_device(uintptr_t address) {
  if (address >= recent_begin_ && address < recent_end_) return true;
  auto after = memories_.upper_bound(address);
  if (after == memories_.begin()) return false;
  const auto [begin, end] = *--after;
  if (address >= end) return false;
  recent_begin_ = begin;
  recent_end_ = end;
  return true;
}

RaceChecker::Page& RaceChecker::page_of(uintptr_t address) {
  const uintptr_t number = address / page_bytes;
  Known& known = known_[number % std::size(known_)];
  if (known.number != number) {
    std::unique_ptr<Page, Free>& page = pages_[number];
    // Zeros, of which the system provides what is touched: most words stay whole.
    if (!page) page.reset(static_cast<Page*>(std::calloc(1, sizeof(Page))));
    if (!page) throw std::bad_alloc();
    known = {number, page.get()};
  }
  return *known.page;
}

void RaceChecker::Page::halve(size_t word) {
  const size_t bytes = word_bytes >> halvings[word]++;
  for (size_t at = 0; at < word_bytes; at += bytes) cells[at + bytes / 2][word] = cells[at][word];
}

void RaceChecker::judge(uintptr_t begin, size_t bytes, Kind kind, const void* caller) {
  const bool shared = begin - shared_ < shared_bytes_;
  if (!shared && !of_device(begin)) return;
  const auto code = static_cast<const char*>(caller) - &__executable_start;
  const auto thread = static_cast<uint16_t>(thread_);
  const Access now = {.block = block_,
                      .barriers = barriers_,
                      .warp_barriers = warp_barriers_[warp_of(thread)],
                      .thread = thread,
                      .kind = kind,
                      .code = static_cast<uint32_t>(code)};
  const uintptr_t end = begin + bytes;
  for (uintptr_t at = begin / word_bytes * word_bytes; at < end; at += word_bytes) {
    Page& page = page_of(at);
    const size_t word = at % page_bytes / word_bytes;
    const uintptr_t from = std::max(begin, at) - at, to = std::min(end, at + word_bytes) - at;
    while ((from | to) % (word_bytes >> page.halvings[word])) page.halve(word);
    const uintptr_t step = word_bytes >> page.halvings[word];
    for (uintptr_t i = from; i < to; i += step) judge(page.cells[i][word], now, shared);
  }
}

void RaceChecker::judge(Cell& cell, const Access& now, bool shared) {
  const bool reads = now.kind == Kind::read;
  if (conflict(cell.write, now, shared)) report(cell.write, now, shared);
  if (reads) {
    if (cell.read.block != block_ || cell.read.thread != now.thread) cell.earlier_read = cell.read;
    cell.read = now;
    return;
  }
  if (conflict(cell.read, now, shared)) report(cell.read, now, shared);
  if (conflict(cell.earlier_read, now, shared)) report(cell.earlier_read, now, shared);
  cell.write = now;
}

bool RaceChecker::conflict(const Access& before, const Access& now, bool shared) const {
  if (before.block < launch_) return false;  // from an earlier launch
  if (before.kind == Kind::atomic && now.kind == Kind::atomic) return false;
  if (before.block != now.block) return !shared;
  if (before.thread == now.thread || before.barriers != now.barriers) return false;
  const bool one_warp = warp_of(before.thread) == warp_of(now.thread);
  return !one_warp || before.warp_barriers == now.warp_barriers;
}

void RaceChecker::report(const Access& before, const Access& now, bool shared) {
  if (found_) return;  // report the first race only
  found_ = std::make_unique<Race>(Race{before, now, shared, blockIdx, threadIdx});
}

std::string RaceChecker::Race::sentence() const {
  const auto verb = [](Kind kind) {
    return kind == Kind::read ? "reads" : kind == Kind::write ? "writes" : "changes";
  };
  const char* memory = shared ? " shared memory" : " device memory";
  const std::string who = whose(block, thread);
  return emulator::sentence(
      "race: a thread ", verb(now.kind), " at ", place(now.code), memory, " that thread ",
      before.thread, before.block == now.block ? " " : " of another block ", verb(before.kind),
      " at ", place(before.code), ", and nothing orders the two", who);
}

}  // namespace emulator
