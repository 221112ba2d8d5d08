#include "tests/models/optimizers/optimizer_testing.h"

#include <span>

namespace spool::testing {
namespace {

void append_bytes(Bytes& to, const Tensor& from) {
  const size_t begin = to.size();
  to.resize(begin + from.nbytes());
  read_bytes(from, 0, std::span(to).subspan(begin));
}

}  // namespace

Bytes state_bytes(const std::vector<Parameter*>& parameters, const AdamWOptimizer& optimizer) {
  Bytes all;
  for (const Parameter* p : parameters) append_bytes(all, p->data);
  for (const auto& tensors :
       {optimizer.first_moments(), optimizer.second_moments(), optimizer.masters()}) {
    for (const Tensor& t : tensors) append_bytes(all, t);
  }
  return all;
}

}  // namespace spool::testing
