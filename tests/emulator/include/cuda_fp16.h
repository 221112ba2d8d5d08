#pragma once

// Included in place of CUDA's own.

#include "cuda_runtime.h"
