#pragma once

// CUDA kernels as C++, on the CPU: what a kernel file and the host code around it include in the
// place of CUDA's headers.  See README.md.

#include "arithmetic.h"
#include "device_types.h"
#include "execution.h"
#include "intrinsics.h"
#include "runtime_api.h"
