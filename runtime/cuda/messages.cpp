#include "spool/runtime/cuda/messages.h"

#include "spool/runtime/log.h"

namespace spool::cuda {

void log_warning(const std::string& text) { logger().warn("{}", text); }
void log_error(const std::string& text) { logger().error("{}", text); }

}  // namespace spool::cuda
