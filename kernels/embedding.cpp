#include "spool/kernels/embedding.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/embedding_sizes.h"

namespace spool {

void EmbeddingForward::check_arguments() const {
  const Arguments all(name);
  all.present("weight", weight, floating);
  all.present("tokens", tokens, DType::i32);
  const int64_t C = weight.shape().row(), T = tokens.shape().row();
  all.rows("y", y, weight.dtype(), tokens.numel(), C);
  check(first_position >= 0, name, ": the first position is ", first_position,
        "; it must be 0 or more");
  part.check_fits(name, "rows", weight.shape().rows());
  if (positions) {
    all.at_least_rows("positions", positions, weight.dtype(), first_position + T, C);
  }
  all.apart("y", y, {{"tokens", tokens}, {"weight", weight}, {"positions", positions}});
}

void EmbeddingBackward::check_arguments() const {
  const Arguments all(name);
  all.present("dy", dy, floating);
  all.present("tokens", tokens, DType::i32);
  const int64_t C = dy.shape().row(), T = tokens.shape().row();
  const Types gradients = gradient_of(dy.dtype());
  all.rows("dy", dy, dy.dtype(), tokens.numel(), C);
  if (dweight) all.at_least_rows("dweight", dweight.view, gradients, 0, C);
  part.check_fits(name, "rows", dweight ? dweight.view.shape().rows() : 0);
  if (dpositions) all.at_least_rows("dpositions", dpositions.view, gradients, T, C);
  all.apart("dweight", dweight.view,
            {{"dpositions", dpositions.view}, {"dy", dy}, {"tokens", tokens}});
  all.apart("dpositions", dpositions.view, {{"dy", dy}, {"tokens", tokens}});
}

size_t EmbeddingBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dweight) return 0;
  return cuda::TokenSort(tokens.numel(), dweight.view.shape().rows(), dy.shape().row()).bytes();
}

}  // namespace spool
