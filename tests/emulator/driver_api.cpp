#include "driver_api.h"

#include <map>
#include <string>

#include "errors.h"
#include "virtual_memory.h"

using emulator::device;
using emulator::failed;
using emulator::refuse;

namespace emulator {
namespace {

thread_local std::string last_refusal;

}  // namespace

CUresult refuse(CUresult why, const char* call, std::string_view sentence) {
  last_refusal.assign(call).append(": ").append(sentence);
  return why;
}

}  // namespace emulator

CUresult cuGetErrorString(CUresult status, const char** text) {
  *text = status == CUDA_SUCCESS ? "no error" : emulator::last_refusal.c_str();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult status, const char** text) {
#define EMULATOR_NAMED(status) \
  { status, #status }
  static const std::map<CUresult, const char*> names{
      EMULATOR_NAMED(CUDA_SUCCESS),
      EMULATOR_NAMED(CUDA_ERROR_INVALID_VALUE),
      EMULATOR_NAMED(CUDA_ERROR_OUT_OF_MEMORY),
      EMULATOR_NAMED(CUDA_ERROR_NOT_INITIALIZED),
      EMULATOR_NAMED(CUDA_ERROR_INVALID_DEVICE),
      EMULATOR_NAMED(CUDA_ERROR_NOT_SUPPORTED),
      EMULATOR_NAMED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)};
#undef EMULATOR_NAMED
  const auto found = names.find(status);
  *text = found == names.end() ? nullptr : found->second;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGet(CUdevice* of, int ordinal) {
  if (ordinal < 0 || ordinal >= device().count) {
    return refuse(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGet", "there is no such device");
  }
  *of = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice of) {
  if (of < 0 || of >= device().count) {
    return refuse(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGetAttribute", "there is no such device");
  }
  const emulator::VirtualMemoryKind& kind = emulator::virtual_memory_kind();
  *value =
      kind.exists && (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
                      (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
                           ? kind.shares_files
                           : kind.gpu_direct));
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
#define EMULATOR_ENTRY(name) \
  { #name, reinterpret_cast < void*>(&name) }
  static const std::map<std::string_view, void*> entries{
      EMULATOR_ENTRY(cuGetErrorString),
      EMULATOR_ENTRY(cuGetErrorName),
      EMULATOR_ENTRY(cuDeviceGet),
      EMULATOR_ENTRY(cuDeviceGetAttribute),
      EMULATOR_ENTRY(cuMemGetAllocationGranularity),
      EMULATOR_ENTRY(cuMemAddressReserve),
      EMULATOR_ENTRY(cuMemAddressFree),
      EMULATOR_ENTRY(cuMemCreate),
      EMULATOR_ENTRY(cuMemRelease),
      EMULATOR_ENTRY(cuMemRetainAllocationHandle),
      EMULATOR_ENTRY(cuMemMap),
      EMULATOR_ENTRY(cuMemUnmap),
      EMULATOR_ENTRY(cuMemSetAccess),
      EMULATOR_ENTRY(cuMemExportToShareableHandle),
      EMULATOR_ENTRY(cuMemImportFromShareableHandle)};
#undef EMULATOR_ENTRY
  *function = nullptr;
  if (version > static_cast<unsigned>(device().driver)) return failed(cudaErrorInvalidValue);
  const auto found = entries.find(symbol);
  if (found != entries.end()) *function = found->second;
  if (result)
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
