#include "spool/runtime/device.h"

#include <charconv>

#include "spool/runtime/check.h"

namespace spool {

Device parse_device(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  const std::optional<DeviceType> type = parse<DeviceType>(kind);
  check(type.has_value(), "device '", text, "' is unknown; there are cpu, cuda, cuda:N and meta");
  Device device{.type = *type};
  if (kind.size() == text.size()) return device;
  const std::string_view digits = text.substr(kind.size() + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  check(number && device.index >= 0, "device '", text, "': a number must follow the colon");
  return device;
}

}  // namespace spool
