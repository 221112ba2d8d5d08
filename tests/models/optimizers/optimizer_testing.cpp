#include "tests/models/optimizers/optimizer_testing.h"

#include <span>

#include "spool/autograd/homes.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

void append_bytes(Bytes& to, const Tensor& from) {
  const size_t begin = to.size();
  to.resize(begin + from.nbytes());
  read_bytes(from, 0, std::span(to).subspan(begin));
}

// Of a parameter that lives on the host, from there.
void append_data(Bytes& to, const Parameter& p) {
  if (p.home) p.homes->synchronize();
  append_bytes(to, p.home ? p.home : p.data);
}

// Calls work(range, bytes) for each row of each parameter.
template <class Work>
void for_each_row(const Optimizer& optimizer, const Work& work) {
  for (size_t row = 0; row < optimizer.state_rows().size(); ++row) {
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
      const int64_t n = optimizer.parameters()[i]->spec().shape.numel();
      work(StateRange{row, i, {0, n}},
           static_cast<size_t>(n) * size_of(optimizer.state_rows()[row].type));
    }
  }
}

}  // namespace

Bytes state_bytes(const std::vector<Parameter*>& parameters, Optimizer& optimizer) {
  Bytes all;
  for (const Parameter* p : parameters) append_data(all, *p);
  for_each_row(optimizer, [&](const StateRange& range, size_t bytes) {
    all.resize(all.size() + bytes);
    optimizer.read_state(range, std::span(all).last(bytes));
  });
  return all;
}

Bytes state_bytes_at_rest(const Optimizer& optimizer) {
  Bytes all;
  for (const Parameter* p : optimizer.parameters()) append_data(all, *p);
  for_each_row(optimizer, [&](const StateRange& range, size_t bytes) {
    all.resize(all.size() + bytes);
    optimizer.places().read(range, std::span(all).last(bytes));
  });
  return all;
}

std::vector<float> read_row(Optimizer& optimizer, const StateRange& range) {
  std::vector<float> all(static_cast<size_t>(range.elements.size()));
  optimizer.read_state(range, std::as_writable_bytes(std::span(all)));
  return all;
}

std::vector<float> read_row(Optimizer& optimizer, size_t row, size_t parameter) {
  return read_row(optimizer,
                  {row, parameter, {0, optimizer.parameters()[parameter]->spec().shape.numel()}});
}

void write_row(Optimizer& optimizer, const StateRange& range, std::span<const float> in) {
  optimizer.write_state(range, std::as_bytes(in));
}

void load_bytes(Optimizer& optimizer, const Bytes& all) {
  std::span<const std::byte> left(all);
  const auto take = [&](size_t bytes) {
    const auto next = left.first(bytes);
    left = left.subspan(bytes);
    return next;
  };
  for (const Parameter* p : optimizer.parameters()) write_bytes(p->data, 0, take(p->data.nbytes()));
  optimizer.initialise();
  for_each_row(optimizer, [&](const StateRange& range, size_t bytes) {
    optimizer.write_state(range, take(bytes));
  });
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
