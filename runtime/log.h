#pragma once

// The library logs only to the logger it is given, and to none until then.

#include <spdlog/logger.h>

#include <memory>

namespace spool {

void set_logger(std::shared_ptr<spdlog::logger>);
spdlog::logger& logger();

}  // namespace spool
