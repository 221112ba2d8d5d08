#pragma once

// The library's logger.  It discards everything until set_logger() is called.

#include <spdlog/logger.h>

#include <memory>

namespace spool {

void set_logger(std::shared_ptr<spdlog::logger>);
spdlog::logger& logger();

}  // namespace spool
