#include "spool/autograd/ops/dimensions.h"

namespace spool {

int dimension(const char* op, const Spec& x, int dim) {
  const int rank = x.shape.rank();
  check(-rank <= dim && dim < rank, op, ": dimension ", dim, " of ", x, ", which has ", rank,
        rank == 1 ? " dimension" : " dimensions", "; 0 is the first and -1 the last");
  return dim < 0 ? dim + rank : dim;
}

// The dimensions before it are one index, n, which is separable; those after it have one each.
std::string term_along(int rank, int dim, char letter) {
  std::string term = dim > 0 ? "n" : "";
  term += letter;
  for (int d = dim + 1; d < rank; ++d) term += static_cast<char>('a' + d);
  return term;
}

Along::Along(const Shape& x, int dim) : extent(x[dim]) {
  for (int d = 0; d < dim; ++d) rows *= x[d];
  for (int d = dim + 1; d < x.rank(); ++d) width *= x[d];
}

}  // namespace spool
