#include "spool/autograd/checks/comparison.h"

#include <bit>
#include <cmath>
#include <cstdio>

#include "spool/runtime/numbers.h"

namespace spool::op_checks {
namespace {

std::string output(size_t i) { return sentence("output ", i); }

// As many digits as tell the number from all others of its type.
std::string exact(double x) {
  char text[32];
  const bool narrow = static_cast<double>(static_cast<float>(x)) == x;
  std::snprintf(text, sizeof text, "%.*g", narrow ? 9 : 17, x);
  return text;
}

std::string of_other_size(const std::string& what, const Numbers& found, const Numbers& wanted) {
  if (found.size() == wanted.size()) return {};
  if (found.empty()) return what + " is absent";
  if (wanted.empty()) return what + " is there, and should be absent";
  return sentence(what, " has ", found.size(), " numbers, not ", wanted.size());
}

std::string different_bits(const std::string& what, const Numbers& found, const Numbers& wanted) {
  const std::string sizes = of_other_size(what, found, wanted);
  if (!sizes.empty()) return sizes;
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  for (size_t k = 0; k < found.size(); ++k) {
    if (bits(found[k]) == bits(wanted[k])) continue;
    return sentence("element ", k, " of ", what, " is ", exact(found[k]), ", not ",
                    exact(wanted[k]));
  }
  return {};
}

// The first sentence that `each` has for a tensor.
template <class Each>
std::string first(const std::vector<Numbers>& found, const std::vector<Numbers>& wanted,
                  std::string (*name)(size_t), const Each& each) {
  if (found.size() != wanted.size()) {
    return sentence("there are ", found.size(), " tensors, not ", wanted.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string text = each(name(i), found[i], wanted[i]);
    if (!text.empty()) return text;
  }
  return {};
}

size_t furthest(const Numbers& a, const Numbers& b) {
  size_t worst = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const double d = std::fabs(a[k] - b[k]);
    if (std::isnan(d)) return k;
    if (d > std::fabs(a[worst] - b[worst])) worst = k;
  }
  return worst;
}

std::string first_too_far(std::string_view by, const std::vector<Numbers>& found,
                          const std::vector<Numbers>& wanted, std::string (*name)(size_t),
                          double bound) {
  return first(found, wanted, name,
               [&](const std::string& what, const Numbers& a, const Numbers& b) {
                 return too_far({.what = what, .by = by}, a, b, bound);
               });
}

}  // namespace

std::string gradient_of(size_t input) { return sentence("the gradient of input ", input); }

std::string different_bits(const SampleValues& found, const SampleValues& wanted) {
  const auto each = [](const std::string& what, const Numbers& a, const Numbers& b) {
    return different_bits(what, a, b);
  };
  const std::string text = first(found.outputs, wanted.outputs, output, each);
  return text.empty() ? first(found.gradients, wanted.gradients, gradient_of, each) : text;
}

std::string too_far(const Compared& compared, const Numbers& found, const Numbers& wanted,
                    double bound) {
  const std::string sizes = of_other_size(compared.what, found, wanted);
  if (!sizes.empty() || found.empty()) return sizes;
  const double apart = numbers::difference(found, wanted);
  if (apart < bound) return {};
  const size_t k = furthest(found, wanted);
  return sentence("element ", k, " of ", compared.what, " is ", found[k], ", and ", compared.by,
                  " ", wanted[k], ": they are ", apart,
                  " of the tensor's largest number apart, and ", bound, " is the most");
}

std::string too_far_output(std::string_view by, const SampleValues& found,
                           const SampleValues& wanted, double bound) {
  return first_too_far(by, found.outputs, wanted.outputs, output, bound);
}

std::string too_far_gradient(std::string_view by, const SampleValues& found,
                             const SampleValues& wanted, double bound) {
  return first_too_far(by, found.gradients, wanted.gradients, gradient_of, bound);
}

}  // namespace spool::op_checks
