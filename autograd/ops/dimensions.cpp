#include "spool/autograd/ops/dimensions.h"

#include <spdlog/fmt/fmt.h>

#include <numeric>

namespace spool {

int dimension(const char* op, const Spec& x, int dim) {
  const int rank = x.shape.rank();
  check(-rank <= dim && dim < rank, op, ": dimension ", dim, " of ", x, ", which has ", rank,
        rank == 1 ? " dimension" : " dimensions", "; 0 is the first and -1 the last");
  return dim < 0 ? dim + rank : dim;
}

int64_t common_unit(std::span<const int64_t> lengths) {
  int64_t unit = 0;
  for (const int64_t length : lengths) unit = std::gcd(unit, length);
  return unit;
}

// The dimensions before it are one index, n; those after it have one each.
std::string term_of_parts(int rank, int dim, std::span<const int64_t> lengths, int64_t unit) {
  std::string parts;
  for (const int64_t length : lengths) {
    if (length > 0) parts += fmt::format("{}{}z", parts.empty() ? "" : "+", length / unit);
  }
  std::string term = dim > 0 ? "n" : "";
  term += parts.empty() ? "Z" : fmt::format("({})", parts);
  for (int d = dim + 1; d < rank; ++d) term += static_cast<char>('a' + d);
  return term;
}

Along::Along(const Shape& x, int dim) : extent(x[dim]) {
  for (int d = 0; d < dim; ++d) rows *= x[d];
  for (int d = dim + 1; d < x.rank(); ++d) width *= x[d];
}

}  // namespace spool
