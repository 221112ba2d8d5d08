// runs: alone
// Virtual memory of the emulated devices: what CUDA's driver API makes of it and refuses, memory
// shared between processes, and what of it counts.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "spool/runtime/cuda/handles.cuh"
#include "tests/emulator/virtual_memory.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

using emulator::count_virtual_memory;
using emulator::mapping_of;
using emulator::memory_granule;
using Handle = CUmemGenericAllocationHandle;

constexpr size_t two = 2 * memory_granule;

CUmemAllocationProp properties(int device = 0) {
  return {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
          .win32HandleMetaData = nullptr,
          .allocFlags = {}};
}

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Why the last call was refused.
std::string why() {
  const char* text = nullptr;
  cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text);
  return text;
}

class EmulatedVirtualMemory : public ::testing::Test {
 protected:
  EmulatedVirtualMemory() { EXPECT_EQ(cudaSetDevice(0), cudaSuccess); }
  ~EmulatedVirtualMemory() override {
    emulator::device() = usual_;
    emulator::virtual_memory_kind() = {};
    EXPECT_EQ(count_virtual_memory(), before_);
    EXPECT_EQ(emulator::used_bytes(0), used_);
    EXPECT_EQ(emulator::used_bytes(1), used_of_second_);
  }

  static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  static Handle create(size_t bytes, int device = 0) {
    Handle handle = 0;
    const CUmemAllocationProp all = properties(device);
    EXPECT_EQ(cuMemCreate(&handle, bytes, &all, 0), CUDA_SUCCESS);
    return handle;
  }
  static CUresult allow(CUdeviceptr address, size_t bytes,
                        CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access{.location = properties().location, .flags = flags};
    return cuMemSetAccess(address, bytes, &access, 1);
  }
  // A reservation with memory mapped at its beginning, which may be used.
  static CUdeviceptr mapped(Handle handle, size_t bytes) {
    const CUdeviceptr address = reserve(bytes);
    EXPECT_EQ(cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(allow(address, bytes), CUDA_SUCCESS);
    return address;
  }
  static void unmap(CUdeviceptr address, size_t bytes) {
    EXPECT_EQ(cuMemUnmap(address, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(address, bytes), CUDA_SUCCESS);
  }
  static void expect_refused(CUresult status, const char* reason) {
    EXPECT_EQ(status, CUDA_ERROR_INVALID_VALUE) << reason;
    EXPECT_TRUE(contains(why(), reason)) << why();
  }

 private:
  emulator::Device usual_ = emulator::device();
  emulator::VirtualMemoryCount before_ = count_virtual_memory();
  size_t used_ = emulator::used_bytes(0), used_of_second_ = emulator::used_bytes(1);
};

TEST_F(EmulatedVirtualMemory, LivesUntilItIsReleasedAndUnmapped) {
  const size_t used = emulator::used_bytes(1);
  for (const bool releases_first : {true, false}) {
    const Handle handle = create(two, 1);
    EXPECT_EQ(emulator::used_bytes(1), used + two);
    const CUdeviceptr address = mapped(handle, two);
    EXPECT_EQ(address % memory_granule, 0u);
    EXPECT_EQ(pointer(address)[two - 1], std::byte{0});
    pointer(address)[two - 1] = std::byte{7};
    if (releases_first) {
      EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    }
    EXPECT_EQ(pointer(address)[two - 1], std::byte{7});
    unmap(address, two);
    EXPECT_EQ(emulator::used_bytes(1), releases_first ? used : used + two);
    if (!releases_first) {
      const CUdeviceptr again = mapped(handle, two);
      EXPECT_EQ(pointer(again)[two - 1], std::byte{7});
      unmap(again, two);
      EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    }
    EXPECT_EQ(emulator::used_bytes(1), used);
    expect_refused(cuMemRelease(handle), "was released");
  }
}

TEST_F(EmulatedVirtualMemory, IsOfWholeGranules) {
  size_t granule = 0;
  CUmemAllocationProp all = properties();
  for (const auto which :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    EXPECT_EQ(cuMemGetAllocationGranularity(&granule, &all, which), CUDA_SUCCESS);
    EXPECT_EQ(granule, memory_granule);
  }
  Handle handle = 0;
  CUdeviceptr address = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, memory_granule - 1, memory_granule + 4096}) {
    expect_refused(cuMemCreate(&handle, bytes, &all, 0), "granules");
    expect_refused(cuMemAddressReserve(&address, bytes, 0, 0, 0), "granules");
  }
  expect_refused(cuMemAddressReserve(&address, two, 3, 0, 0), "power of two");
  EXPECT_EQ(cuMemAddressReserve(&address, two, 8 * memory_granule, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(address % (8 * memory_granule), 0u);
  handle = create(two);
  expect_refused(cuMemMap(address + 4096, memory_granule, 0, handle, 0), "granules");
  expect_refused(cuMemMap(address, memory_granule + 1, 0, handle, 0), "granules");
  expect_refused(cuMemMap(address, memory_granule, memory_granule, handle, 0), "offset");
  EXPECT_EQ(cuMemAddressFree(address, two), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(EmulatedVirtualMemory, IsMappedOnceWithinOneReservation) {
  const Handle handle = create(two);
  const CUdeviceptr address = reserve(3 * memory_granule);
  expect_refused(cuMemMap(address, 3 * memory_granule, 0, handle, 0), "larger than the memory");
  expect_refused(cuMemMap(address + two, two, 0, handle, 0), "in one reservation");
  expect_refused(cuMemMap(address - two, two, 0, handle, 0), "in one reservation");
  expect_refused(cuMemMap(address, two, 0, handle + 1, 0), "the handle is none");
  EXPECT_EQ(cuMemMap(address + memory_granule, two, 0, handle, 0), CUDA_SUCCESS);
  expect_refused(cuMemMap(address, two, 0, handle, 0), "mapped in the range already");
  expect_refused(cuMemMap(address + two, memory_granule, 0, handle, 0), "already");
  // A second mapping has the same bytes.
  const CUdeviceptr other = mapped(handle, two);
  EXPECT_EQ(allow(address + memory_granule, two), CUDA_SUCCESS);
  *pointer(other) = std::byte{5};
  EXPECT_EQ(*pointer(address + memory_granule), std::byte{5});
  unmap(other, two);
  EXPECT_EQ(cuMemUnmap(address + memory_granule, two), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(address, 3 * memory_granule), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(EmulatedVirtualMemory, IsUnmappedAndFreedAsAWhole) {
  const Handle handle = create(two);
  const CUdeviceptr address = reserve(two);
  expect_refused(allow(address, two), "whole mappings");
  expect_refused(cuMemUnmap(address, two), "whole mappings");
  EXPECT_EQ(cuMemMap(address, two, 0, handle, 0), CUDA_SUCCESS);
  expect_refused(allow(address, memory_granule), "whole mappings");
  expect_refused(allow(address + memory_granule, memory_granule), "whole mappings");
  expect_refused(cuMemUnmap(address, memory_granule), "whole mappings");
  expect_refused(cuMemUnmap(address + memory_granule, memory_granule), "whole mappings");
  expect_refused(cuMemAddressFree(address, two), "still mapped");
  EXPECT_EQ(cuMemUnmap(address, two), CUDA_SUCCESS);
  expect_refused(cuMemUnmap(address, two), "whole mappings");
  expect_refused(cuMemAddressFree(address, memory_granule), "that was reserved");
  expect_refused(cuMemAddressFree(address + memory_granule, memory_granule), "that was reserved");
  EXPECT_EQ(cuMemAddressFree(address, two), CUDA_SUCCESS);
  expect_refused(cuMemAddressFree(address, two), "that was reserved");
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(EmulatedVirtualMemory, CountsAgainstTheDevice) {
  emulator::device().bytes = emulator::used_bytes(0) + two;
  const Handle handle = create(two);
  Handle second = 0;
  const CUmemAllocationProp all = properties();
  EXPECT_EQ(cuMemCreate(&second, memory_granule, &all, 0), CUDA_ERROR_OUT_OF_MEMORY);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(EmulatedVirtualMemory, OfWrongPropertiesIsRefused) {
  Handle handle = 0;
  CUmemAllocationProp all = properties(emulator::max_devices);
  EXPECT_EQ(cuMemCreate(&handle, two, &all, 0), CUDA_ERROR_INVALID_DEVICE);
  all = properties();
  all.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  expect_refused(cuMemCreate(&handle, two, &all, 0), "pinned");
  all = properties();
  all.allocFlags.usage = 0xcdcd;  // as of a struct that nothing initialised
  EXPECT_EQ(cuMemCreate(&handle, two, &all, 0), CUDA_ERROR_NOT_SUPPORTED);
  all = properties();
  all.allocFlags.gpuDirectRDMACapable = 1;
  emulator::virtual_memory_kind().gpu_direct = false;
  EXPECT_EQ(cuMemCreate(&handle, two, &all, 0), CUDA_ERROR_NOT_SUPPORTED);
  emulator::virtual_memory_kind().exists = false;
  all = properties();
  EXPECT_EQ(cuMemCreate(&handle, two, &all, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(EmulatedVirtualMemory, IsNotMadeDuringACapture) {
  const cuda::StreamHandle stream = cuda::make_stream();
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, two, 0, 0, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cuda::GraphHandle graph;
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
}

TEST_F(EmulatedVirtualMemory, AnswersWhichMappingAnAddressIsIn) {
  const Handle handle = create(two, 1);
  const CUdeviceptr address = reserve(two);
  EXPECT_FALSE(mapping_of(pointer(address)));
  EXPECT_EQ(cuMemMap(address, two, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_FALSE(mapping_of(pointer(address))->has_access);
  EXPECT_EQ(allow(address, two), CUDA_SUCCESS);
  for (const size_t offset : {size_t{0}, size_t{512}, two - 1}) {
    const auto found = mapping_of(pointer(address + offset));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->begin, pointer(address));
    EXPECT_EQ(found->bytes, two);
    EXPECT_EQ(found->device, 1);
    EXPECT_TRUE(found->has_access);
    std::byte byte{1};
    EXPECT_EQ(::pread(found->file, &byte, 1, static_cast<off_t>(offset)), 1);
    EXPECT_EQ(byte, std::byte{0});
  }
  EXPECT_FALSE(mapping_of(pointer(address + two)));
  EXPECT_FALSE(mapping_of(pointer(address - 1)));
  Handle same = 0;
  EXPECT_EQ(cuMemRetainAllocationHandle(&same, pointer(address + 5)), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  const CUdeviceptr other = mapped(same, two);
  *pointer(other) = std::byte{3};
  EXPECT_EQ(*pointer(address), std::byte{3});
  unmap(other, two);
  unmap(address, two);
  EXPECT_EQ(cuMemRelease(same), CUDA_SUCCESS);
  void* usual = nullptr;
  ASSERT_EQ(cudaMalloc(&usual, two), cudaSuccess);
  EXPECT_FALSE(mapping_of(usual));
  EXPECT_EQ(cudaFree(usual), cudaSuccess);
}

// Sends a file's descriptor, as processes do that share memory.
void send_file(int socket, int file) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
  EXPECT_EQ(::sendmsg(socket, &message, 0), 1);
}

int receive_file(int socket) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int file = -1;
  if (::recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) return file;
  std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

// In another process: adds one to the first byte of the memory that it is sent.
bool adds_one(int socket) {
  const int file = receive_file(socket);
  Handle handle = 0;
  CUdeviceptr address = 0;
  const CUmemAccessDesc access{.location = properties().location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  auto* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(file));
  if (cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
      cuMemAddressReserve(&address, two, 0, 0, 0) || cuMemMap(address, two, 0, handle, 0) ||
      cuMemSetAccess(address, two, &access, 1)) {
    return false;
  }
  const bool is_of_second = mapping_of(pointer(address))->device == 1;
  ++*reinterpret_cast<char*>(address);
  return is_of_second && !cuMemUnmap(address, two) && !cuMemRelease(handle);
}

TEST_F(EmulatedVirtualMemory, IsSharedBetweenProcesses) {
  int sockets[2] = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(adds_one(sockets[1]) ? 0 : 1);
  const size_t used = emulator::used_bytes(1);
  const Handle handle = create(two, 1);
  const CUdeviceptr address = mapped(handle, two);
  *pointer(address) = std::byte{41};
  int file = -1;
  EXPECT_EQ(
      cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUDA_SUCCESS);
  send_file(sockets[0], file);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*pointer(address), std::byte{42});
  EXPECT_EQ(emulator::used_bytes(1), used + two) << "it counts where it was created alone";
  for (const int one : {file, sockets[0], sockets[1]}) ::close(one);
  unmap(address, two);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(EmulatedVirtualMemory, IsSharedOnlyIfItWasCreatedForThat) {
  CUmemAllocationProp all = properties();
  all.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  Handle handle = 0, imported = 0;
  EXPECT_EQ(cuMemCreate(&handle, two, &all, 0), CUDA_SUCCESS);
  int file = -1;
  expect_refused(
      cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "not created to be shared");
  const CUdeviceptr address = mapped(handle, two);
  EXPECT_EQ(mapping_of(pointer(address))->file, -1);
  unmap(address, two);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  const int none = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  auto* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(none));
  expect_refused(
      cuMemImportFromShareableHandle(&imported, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "no file descriptor of a device's memory");
  ::close(none);
}

void read_from(CUdeviceptr address) {
  [[maybe_unused]] const volatile std::byte read = *pointer(address);
}

using EmulatedVirtualMemoryDeathTest = EmulatedVirtualMemory;

TEST_F(EmulatedVirtualMemoryDeathTest, FaultsWhereThereIsNoAccess) {
  const Handle handle = create(two);
  const CUdeviceptr address = reserve(two);
  EXPECT_DEATH(read_from(address), "");
  EXPECT_EQ(cuMemMap(address, two, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_DEATH(read_from(address), "");
  EXPECT_EQ(allow(address, two, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  read_from(address);
  EXPECT_DEATH(*pointer(address) = std::byte{1}, "");
  EXPECT_EQ(allow(address, two), CUDA_SUCCESS);
  *pointer(address) = std::byte{1};
  EXPECT_DEATH(read_from(address + two), "");
  EXPECT_EQ(allow(address, two, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
  EXPECT_DEATH(read_from(address), "");
  unmap(address, two);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_DEATH(read_from(address), "");
}

TEST_F(EmulatedVirtualMemory, EntryPointsAreFoundByNameAndVersion) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 12000, cudaEnableDefault, &result),
      cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSuccess);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemCreate));
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuMemNone", &found, 12000, cudaEnableDefault, &result),
      cudaSuccess);
  EXPECT_EQ(result, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(found, nullptr);
  emulator::device().driver = 11080;
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 12000, cudaEnableDefault, nullptr),
      cudaErrorInvalidValue);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace spool::testing
