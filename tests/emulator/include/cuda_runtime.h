#pragma once
// Found in the place of CUDA's own: the emulator's.
#include "../emulator.h"
#include "../runtime_api.h"
