#include "spool/runtime/log.h"

#include <spdlog/sinks/null_sink.h>

namespace spool {
namespace {

std::shared_ptr<spdlog::logger>& current() {
  static auto logger =
      std::make_shared<spdlog::logger>("spool", std::make_shared<spdlog::sinks::null_sink_mt>());
  return logger;
}

}  // namespace

void set_logger(std::shared_ptr<spdlog::logger> logger) { current() = std::move(logger); }
spdlog::logger& logger() { return *current(); }

}  // namespace spool
