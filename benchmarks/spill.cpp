// Measures bytes per second to and from a SpillFile in the directory $SPOOL_SPILL, or in the
// system's directory for temporary files.
//
//   write/<way>/<MiB>    one transfer from memory
//   read/<way>/<MiB>     one transfer into memory
//   both/<way>/<MiB>     a write and a read at the same time; bytes_per_second counts both
//
// The ways are
//   usual    io_uring and O_DIRECT, as far as the system has them
//   sync     pread and pwrite instead of io_uring
//   cached   pread and pwrite through the page cache: reads do not come from the disk, and writes
//            may not have reached it
// The label says which were used.

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>

#include "spool/runtime/check.h"
#include "spool/runtime/files/spill_file.h"

namespace spool {
namespace {

namespace fs = std::filesystem;

enum class Work { write, read, both };

struct Case {
  Work work;
  const char* way;
  size_t bytes;
};

fs::path directory() {
  const char* named = ::getenv("SPOOL_SPILL");
  return named ? fs::path(named) : fs::temp_directory_path();
}

SpillFile make_file(const Case& c) {
  ::setenv("SPOOL_IO", c.way, /*overwrite=*/1);
  return {directory(), 2 * c.bytes};
}

std::byte* allocate(size_t bytes) {
  auto* memory = static_cast<std::byte*>(::aligned_alloc(SpillFile::alignment, bytes));
  for (size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + (i >> 12));
  return memory;
}

void transfer(benchmark::State& state, const Case& c) {
  SpillFile file = make_file(c);
  std::byte *from = allocate(c.bytes), *to = allocate(c.bytes);
  file.write(0, from, c.bytes);
  file.write(c.bytes, from, c.bytes);
  for (auto _ : state) {
    std::thread writer;
    if (c.work == Work::both) writer = std::thread([&] { file.write(0, from, c.bytes); });
    if (c.work == Work::write) file.write(0, from, c.bytes);
    if (c.work != Work::write) file.read(c.bytes, to, c.bytes);
    if (writer.joinable()) writer.join();
  }
  const size_t bytes = c.bytes * (c.work == Work::both ? 2 : 1);
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  state.SetLabel(file.description());
  ::free(from);
  ::free(to);
}

void register_all() {
  constexpr std::pair<Work, const char*> works[] = {
      {Work::write, "write/"}, {Work::read, "read/"}, {Work::both, "both/"}};
  constexpr std::pair<const char*, const char*> ways[] = {
      {"", "usual/"}, {"sync", "sync/"}, {"cached", "cached/"}};
  for (const auto& [work, work_name] : works) {
    for (const auto& [way, way_name] : ways) {
      for (const size_t mebibytes : {64, 256}) {
        const Case c{.work = work, .way = way, .bytes = mebibytes << 20};
        benchmark::RegisterBenchmark(sentence(work_name, way_name, mebibytes).c_str(),
                                     [=](auto& state) { transfer(state, c); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  spool::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
