#pragma once

// Found in the place of CUDA's own.

#include "cuda_runtime.h"
