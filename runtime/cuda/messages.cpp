#include "spool/runtime/cuda/messages.h"

#include "spool/runtime/log.h"

namespace spool::cuda {

void log_warning(const std::string& text) { logger().warn("{}", text); }

}  // namespace spool::cuda
