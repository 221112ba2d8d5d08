// runs: alone
// Emulated NCCL takes memory of windows alone, and only such memory as windows.

#include "ranks.h"

namespace spool::testing {
namespace {

TEST(EmulatedNcclWindowsRefuse, BuffersThatAreNotInAWindow) {
  const auto refuse = [](const std::string& why, const Body& body) {
    expect_said(run_pair(body), {why});
  };
  refuse("outside of a window", [](Rank& r) {
    std::byte* const other = make_memory(window_bytes);
    need(r.comm, ncclAlltoAll(other, r.taken(), 8, ncclFloat32, r.comm, r.stream));
  });
  refuse("outside of a window", [](Rank& r) {  // its last byte
    need(r.comm, r.all_to_all(window_bytes / 4 / sizeof(float) + 1));
  });
  refuse("outside of a window", [](Rank& r) {
    need(r.comm, ncclCommWindowDeregister(r.comm, r.window));
    need(r.comm, r.all_to_all());
  });
  refuse("not aligned to 16 bytes", [](Rank& r) {
    need(r.comm, ncclAllGather(r.memory + 8, r.taken(), 8, ncclFloat32, r.comm, r.stream));
  });
  refuse("takes into what it gives", [](Rank& r) {
    need(r.comm, ncclAlltoAll(r.memory, r.memory, 8, ncclFloat32, r.comm, r.stream));
  });
  refuse("not the communicator's device", [](Rank& r) {  // nor is the stream
    need(cudaSetDevice(2));
    need(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    need(r.comm, r.all_to_all());
  });
  refuse("there is no type", [](Rank& r) {
    need(r.comm, ncclAlltoAll(r.memory, r.taken(), 8, ncclNumTypes, r.comm, r.stream));
  });
}

TEST(EmulatedNcclWindowsRefuse, WindowsOfOtherMemory) {
  const auto refuse = [](const std::string& why, const std::function<void*(Rank&)>& memory_of,
                         int flags = NCCL_WIN_COLL_SYMMETRIC) {
    expect_said(run_pair([&](Rank& r) {
                  ncclWindow_t window = nullptr;
                  void* const memory = memory_of(r);
                  need(r.comm,
                       ncclCommWindowRegister(r.comm, memory, window_bytes, &window, flags));
                }),
                {why});
  };
  refuse("by cuMemCreate", [](Rank&) {
    void* memory = nullptr;
    need(cudaMalloc(&memory, window_bytes + 4096));
    return memory;
  });
  refuse("by cuMemCreate", [](Rank& r) { return r.memory + 4096; });  // beyond its end
  refuse("by cuMemCreate", [](Rank& r) {
    need(cudaSetDevice(2));
    void* const memory = make_memory(window_bytes);
    need(cudaSetDevice(r.rank));
    return memory;
  });
  refuse("by cuMemCreate", [](Rank& r) {
    void* const memory = make_memory(window_bytes);
    const CUmemAccessDesc none{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = r.rank},
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    need(cuMemSetAccess(reinterpret_cast<CUdeviceptr>(memory), window_bytes, &none, 1));
    return memory;
  });
  refuse("multiple of 4096", [](Rank& r) { return r.memory + 512; });
  refuse(
      "NCCL_WIN_COLL_SYMMETRIC", [](Rank& r) { return r.memory; }, NCCL_WIN_DEFAULT);
}

TEST(EmulatedNcclWindowsRefuse, ToDeregisterAWindowInUseOrTwice) {
  expect_said(run_pair([](Rank& r) {
                need(r.comm, r.all_to_all());
                need(r.comm, ncclCommWindowDeregister(r.comm, r.window));
              }),
              {"still wait on a stream"});
  expect_said(run_pair([](Rank& r) {
                r.capture([&] { need(r.comm, r.all_to_all()); });
                need(r.comm, ncclCommWindowDeregister(r.comm, r.window));
              }),
              {"a graph outlives"});
  expect_said(run_pair([](Rank& r) {
                need(r.comm, ncclCommWindowDeregister(r.comm, r.window));
                need(r.comm, ncclCommWindowDeregister(r.comm, r.window));
              }),
              {"was deregistered"});
}

TEST(EmulatedNcclWindowsRefuse, WindowsThatDifferBetweenRanks) {
  const auto refuse = [](size_t offset, size_t bytes) {
    expect_said(run_pair([=](Rank& r) {
                  ncclWindow_t window = nullptr;
                  const bool other = r.rank == 1;
                  need(r.comm, ncclCommWindowRegister(r.comm, r.memory + (other ? offset : 0),
                                                      other ? bytes : 8192, &window,
                                                      NCCL_WIN_COLL_SYMMETRIC));
                }),
                {"ncclCommWindowRegister of 8192 bytes from byte 0",
                 "ncclCommWindowRegister of " + std::to_string(bytes) + " bytes from byte " +
                     std::to_string(offset)});
  };
  refuse(0, 4096);
  refuse(4096, 8192);
}

}  // namespace
}  // namespace spool::testing
