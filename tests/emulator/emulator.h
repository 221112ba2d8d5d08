#pragma once

// CUDA kernels as C++ on the CPU: kernel files and their host code include this in place of CUDA's
// headers.  See README.md.

#include "arithmetic.h"
#include "device_clock.h"
#include "device_types.h"
#include "execution.h"
#include "intrinsics.h"
#include "runtime_api.h"
#include "tensor_cores.h"
