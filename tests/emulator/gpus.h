#pragma once

// The GPUs of the emulated machine: EMULATOR_DEVICES of them, else two.  A process sees those that
// CUDA_VISIBLE_DEVICES lists, in that order, as its devices 0, 1, ...

namespace emulator {

int visible_gpus();
// The number on the machine of a device of this process.
int gpu_of(int device);

}  // namespace emulator
