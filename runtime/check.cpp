#include "spool/runtime/check.h"

#include "spool/runtime/units.h"

namespace spool {

void fail_memory(const Shortage& s) {
  const auto amount = [](size_t bytes) {
    return sentence(format_bytes(bytes), " (", bytes, " bytes)");
  };
  const std::string available = s.available ? ", and " + amount(*s.available) + " are available" +
                                                  (s.place.empty() ? "" : " " + s.place)
                                            : ", and the system will not provide them";
  throw Error(ErrorKind::memory,
              sentence(s.what, " needs ", amount(s.needed), available, s.advice.empty() ? "" : "; ",
                       s.advice),
              {.needed = s.needed,
               .capacity = s.available.value_or(0),
               .op = s.op,
               .settings = s.settings});
}

}  // namespace spool
