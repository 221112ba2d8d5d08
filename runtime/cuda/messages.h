#pragma once

// Messages of the logger (runtime/log.h), whose library nvcc does not compile.

#include <string>

namespace spool::cuda {

void log_warning(const std::string&);

}  // namespace spool::cuda
