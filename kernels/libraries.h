#pragma once

// The libraries that kernels call, with their versions, on which their speed depends.

#include <string>

#include "spool/runtime/device.h"

namespace spool {

// "oneDNN 2.6.0", "cuBLASLt 130000, cuDNN 91800", "no cuBLASLt"; "none" if there are none.
std::string library_versions(DeviceType);

// The versions for the cuda device, in a build that has it.
std::string cuda_library_versions();

}  // namespace spool
