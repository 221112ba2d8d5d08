// Of cuDNN what says its version.

#include <cstddef>

extern "C" size_t cudnnGetVersion() { return CUDNN_VERSION_SAID; }
