#pragma once

// Included in place of CUDA's own.

#include "../driver_api.h"
