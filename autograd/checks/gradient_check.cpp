#include "spool/autograd/checks/gradient_check.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace spool {
namespace {

thread_local int scopes = 0;  // live objects of WithGradientChecks

// Quiet NaNs with low bits of the fraction set: arithmetic on other numbers yields only NaNs whose
// fraction is its highest bit.
template <class Visit>
void with_mark(DType type, const Visit& visit) {
  switch (type) {
    case DType::bf16:
    case DType::f16:
      return visit(uint16_t{0x7fd5});
    case DType::f64:
      return visit(uint64_t{0x7ff8'5900'd590'0d55});
    default:
      return visit(uint32_t{0x7fd5'900d});
  }
}

void fill_with_mark(const View& to) {
  with_mark(to.dtype(), [&](auto mark) { std::fill_n(to.as<decltype(mark)>(), to.numel(), mark); });
}

// The first element that is marked; -1: none.
int64_t find_mark(const View& in) {
  int64_t found = -1;
  with_mark(in.dtype(), [&](auto mark) {
    const auto* const all = in.as<decltype(mark)>();
    const auto* const at = std::find(all, all + in.numel(), mark);
    if (at != all + in.numel()) found = at - all;
  });
  return found;
}

}  // namespace

bool GradientCheck::covers(const Stream& stream) {
  static const bool wanted = [] {
    const char* const setting = std::getenv("SPOOL_CHECK");
    return setting && std::string_view(setting) == "1";
  }();
  return (wanted || scopes > 0) && stream.device().type == DeviceType::cpu;
}

WithGradientChecks::WithGradientChecks() { ++scopes; }

WithGradientChecks::~WithGradientChecks() { --scopes; }

void GradientCheck::share(int input) {
  check(!handed_out(input), op_, ": it asks twice for the gradient of input ", input,
        ", counted from 0; ask once, and write to what you get");
  inputs_ |= 1u << input;
}

void GradientCheck::hand_out(int input, const Grad& gradient) {
  share(input);
  if (gradient.accumulate) return;
  static_cast<CpuStream&>(stream_).enqueue([to = gradient.view] { fill_with_mark(to); });
  filled_.push_back({input, gradient.view});
}

void GradientCheck::finish() const {
  if (filled_.empty()) return;
  stream_.synchronize();
  for (const auto& [input, gradient] : filled_) {
    const int64_t at = find_mark(gradient);
    check(at < 0, op_, ": element ", at, " of the gradient of input ", input, ", ", gradient.spec(),
          ", was not written, or not before it was read");
  }
}

}  // namespace spool
