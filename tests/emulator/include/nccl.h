#pragma once

// The part of NCCL that Spool calls, with its names, numbers and layouts (of version 2.28.9), over
// emulated devices: see nccl/communicator.h.

#include <climits>
#include <cstddef>

#include "cuda_runtime.h"

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

struct ncclComm;
struct ncclWindow_vidmem;
using ncclComm_t = ncclComm*;
using ncclWindow_t = ncclWindow_vidmem*;

struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
  ncclNumResults,
};

enum ncclDataType_t {
  ncclInt8,
  ncclChar = ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclInt = ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclHalf = ncclFloat16,
  ncclFloat32,
  ncclFloat = ncclFloat32,
  ncclFloat64,
  ncclDouble = ncclFloat64,
  ncclBfloat16,
  ncclNumTypes = 12,
};

struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char* netName;
  int splitShare, trafficClass;
  const char* commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
};

// What a configuration must begin as.
#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_INITIALIZER                                                                \
  {                                                                                            \
    sizeof(ncclConfig_t), NCCL_CONFIG_MAGIC, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,                   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                   \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,                                          \
  }

extern "C" {
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);

ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
ncclResult_t ncclCommSplit(ncclComm_t, int color, int key, ncclComm_t* made, ncclConfig_t*);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);

ncclResult_t ncclCommWindowRegister(ncclComm_t, void* memory, size_t bytes, ncclWindow_t*,
                                    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t, ncclComm_t,
                          cudaStream_t);
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t,
                           ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
}
