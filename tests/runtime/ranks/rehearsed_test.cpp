// runs: numbers
// Rehearsed exchanges take the time of the link, and those of ranks on GPUs the workspace and the
// time in which messages are packed into pieces.

#include <gtest/gtest.h>

#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/packing.h"

namespace spool {
namespace {

constexpr int rehearsed_size = 4;
constexpr size_t rehearsed_piece = 1000;

Machine machine_of_ranks(const Architecture& architecture) {
  Machine machine{.architecture = architecture, .bytes_per_second = 1e6, .launch_seconds = 1};
  machine.mesh = {
      .ranks = rehearsed_size, .rank = 1, .link = {.seconds = 8, .bytes_per_second = 100}};
  return machine;
}

// The seconds of an exchange in which this rank gives each other one, and takes of it, a piece.
double rehearsed_seconds(const Architecture& architecture, Pattern pattern) {
  MetaStream stream(machine_of_ranks(architecture), 1 << 20);
  std::byte byte;  // never read
  Exchange exchange{.name = "numbers", .pattern = pattern, .piece = rehearsed_piece};
  for (const int peer : {0, 2, 3}) {
    exchange.out.push_back({peer, &byte, rehearsed_piece});
    exchange.in.push_back({peer, &byte, rehearsed_piece});
  }
  stream.ranks()->exchange(exchange, stream);
  EXPECT_EQ(stream.ranks()->sent(), 3 * rehearsed_piece);
  return stream.record().time;
}

TEST(RehearsedRanks, TakeTheTimeOfTheLinkOnACpu) {
  EXPECT_DOUBLE_EQ(rehearsed_seconds(CpuArchitecture{}, Pattern::all_to_all), 8 + 30);
  EXPECT_DOUBLE_EQ(rehearsed_seconds(CpuArchitecture{}, Pattern::all_gather), 8 + 30);
}

// Three pieces are read and written to go out, and, where all get the same, one, and three of the
// others.
TEST(RehearsedRanks, AddTheTimeOfPackingOnGpus) {
  EXPECT_DOUBLE_EQ(rehearsed_seconds(CudaArchitecture{}, Pattern::all_to_all),
                   8 + 30 + 1 + 2 * 3000 / 1e6);
  EXPECT_DOUBLE_EQ(rehearsed_seconds(CudaArchitecture{}, Pattern::all_gather),
                   8 + 30 + 2 + 2 * (1000 + 3000) / 1e6);
}

TEST(RehearsedRanks, DeclareAWorkspaceOfWholePiecesOnGpusAlone) {
  const MetaStream gpu(machine_of_ranks(CudaArchitecture{}), 1 << 20);
  EXPECT_EQ(gpu.ranks()->workspace_bytes(rehearsed_piece), 4 * 1024U);
  EXPECT_EQ(gpu.ranks()->workspace_bytes(1024), 4 * 1024U);
  EXPECT_EQ(gpu.ranks()->workspace_bytes(1025), 4 * 1536U);
  const MetaStream cpu(machine_of_ranks(CpuArchitecture{}), 1 << 20);
  EXPECT_EQ(cpu.ranks()->workspace_bytes(rehearsed_piece), 0U);
}

}  // namespace
}  // namespace spool
