#pragma once

// Included in place of CUDA's own.

#include "../emulator.h"
