#include "tests/models/optimizers/optimizer_testing.h"

#include <span>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

void append_bytes(Bytes& to, const Tensor& from) {
  const size_t begin = to.size();
  to.resize(begin + from.nbytes());
  read_bytes(from, 0, std::span(to).subspan(begin));
}

}  // namespace

Bytes state_bytes(const std::vector<Parameter*>& parameters, Optimizer& optimizer) {
  Bytes all;
  for (const Parameter* p : parameters) append_bytes(all, p->data);
  for (const StateTensors& row : optimizer.state()) {
    for (const Tensor& t : row.tensors) append_bytes(all, t);
  }
  return all;
}

OptimizerRun::OptimizerRun(const std::vector<int64_t>& numels, const OptimizerForm& f,
                           const StatePlace& place, const MakeLink& make_link, size_t budget)
    : stream(budget, 2), link(make_link(stream)), form(f), parameters(numels.size()) {
  for (size_t i = 0; i < numels.size(); ++i) {
    parameters[i].data = normal({numels[i], 1}, form.type, stream, i);
    pointers.push_back(&parameters[i]);
  }
  random = make_tensor<int32_t>({4}, std::vector<int32_t>{11, 22, 0, 0}, stream);
  optimizer.emplace(
      pointers, AdamWSettings{.rounding = form.rounding}, stream,
      OptimizerMemory{
          .state = place.state, .link = link.get(), .bytes_on_device = place.bytes_on_device});
}

OptimizerRun::OptimizerRun(const std::vector<int64_t>& numels, const OptimizerForm& f,
                           const StatePlace& place)
    : OptimizerRun(numels, f, place,
                   [](Stream& on) { return std::make_unique<HostLink>(on, host_bytes); }) {
  optimizer->initialise();
}

void OptimizerRun::make_gradients(int64_t t) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool absent = parameters.size() > 2 && (i + static_cast<size_t>(t)) % 3 == 0;
    if (absent) continue;
    parameters[i].grad = normal(parameters[i].data.shape(), form.gradient, stream,
                                100 * static_cast<uint64_t>(t) + i);
  }
}

}  // namespace spool::testing
