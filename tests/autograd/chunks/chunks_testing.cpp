#include "tests/autograd/chunks/chunks_testing.h"

#include <algorithm>

#include "spool/autograd/chunks/cut.h"
#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

Tensor ids_below(int64_t bound, const Shape& shape, Stream& stream, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(shape.numel()));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(bound));
  return make_tensor<int32_t>(shape, ids, stream);
}

Tensor float_scalar(float value, Stream& stream) {
  const std::vector<float> all{value};
  return make_tensor<float>({1}, all, stream);
}

Tensor state_of_random_numbers(Stream& stream) {
  const std::vector<int32_t> state{11, 22, 3, 1};
  return make_tensor<int32_t>({4}, state, stream);
}

}  // namespace

Net::Net(Stream& s, const NetOptions& options) : stream(s), of(options) {
  const int64_t C = of.C;
  uint64_t seed = 1;
  const auto make = [&](Name name, const Shape& shape) {
    const double deviation = shape.rank() > 1 ? 1 / std::sqrt(static_cast<double>(shape[-1])) : 1;
    return Parameter{.name = name, .data = normal(shape, of.dtype, stream, seed++, deviation)};
  };
  norm_weight = make("norm.weight", {C});
  norm_bias = make("norm.bias", {C});
  fc = make("fc.weight", {4 * C, C});
  fc_bias = make("fc.bias", {4 * C});
  proj = make("proj.weight", {C, 4 * C});
  proj_bias = make("proj.bias", {C});
  square = make("square.weight", {C, C});
  qkv = make("qkv.weight", {3 * C, C});
  head = make("head.weight", {V, C});
  tokens_weight = make("tokens.weight", {V, C});
  x = normal({of.B, of.T, C}, of.dtype, stream, 50);
  w = normal({C, C}, of.dtype, stream, 51, 1 / std::sqrt(static_cast<double>(C)));
  tokens = ids_below(V, {of.B, of.T}, stream, 52);
  targets = ids_below(V, {of.B, of.T}, stream, 53);
  random = state_of_random_numbers(stream);
  loss_scale = float_scalar(1.0f / static_cast<float>(of.B * of.T), stream);
}

Var Net::mlp(const Var& h) {
  const Var y = gelu(linear(layer_norm(h, norm_weight, norm_bias), fc, fc_bias));
  return add(h, dropout(linear(y, proj, proj_bias), of.dropout));
}

Var Net::mixer(const Var& h) {
  const Var y = attention(linear(layer_norm(h, norm_weight, norm_bias), qkv), {2, 2});
  return add(h, linear(y, square));
}

Var Net::loss(const Var& h, Reduction reduction) {
  return linear_cross_entropy(h, head, h.tape().input(targets), {.reduction = reduction});
}

TapeOptions Net::options(Plan plan) const {
  return {.plan = std::move(plan), .loss_scale = loss_scale, .random = random};
}

std::vector<Parameter*> Net::parameters() {
  return {&norm_weight, &norm_bias, &fc,  &fc_bias, &proj,
          &proj_bias,   &square,    &qkv, &head,    &tokens_weight};
}

std::vector<Tensor> Net::take_gradients() {
  std::vector<Tensor> all;
  for (Parameter* const p : parameters()) all.push_back(std::exchange(p->grad, {}));
  return all;
}

namespace {

TapeOptions with_net(TapeOptions options, const Net& net) {
  options.random = net.random;
  options.loss_scale = net.loss_scale;
  return options;
}

}  // namespace

CaseRun::CaseRun(const ChunkCase& c, Stream& stream, const TapeOptions& options,
                 const NetOptions& net)
    : case_(c),
      net_(stream, net),
      tape_(stream, with_net(options, net_)),
      x_(tape_.input(net_.x, net.x_needs_grad)),
      w_(tape_.input(net_.w, /*needs_grad=*/true)) {}

void CaseRun::forward() { outputs_ = case_.apply(net_, x_, w_); }

std::vector<Tensor> CaseRun::output_tensors() const {
  std::vector<Tensor> all;
  for (const Var& y : outputs_) all.push_back(y.tensor());
  return all;
}

void CaseRun::backward() {
  std::vector<Root> roots;
  for (const Var& y : outputs_) {
    const bool is_loss = y.shape().numel() == 1;
    roots.push_back({y, is_loss
                            ? Tensor()
                            : normal(y.shape(), y.spec().dtype, net_.stream, 900 + roots.size())});
  }
  tape_.backward(roots);
}

std::vector<Tensor> CaseRun::take_gradients() {
  std::vector<Tensor> all = net_.take_gradients();
  all.push_back(tape_.grad(x_));
  all.push_back(tape_.grad(w_));
  return all;
}

Program program_of(const ChunkCase& c, const NetOptions& net) {
  static MetaStream stream(Machine{});  // programs of other nets have no tensors
  CaseRun run(c, stream, {}, net);
  run.forward();
  run.output_tensors();
  return run.tape().take_program();
}

Region region_of(const Program& program, NodeId first, NodeId last, int chunks) {
  return {first, last, chunks, find_leaves(program, first, last)};
}

Plan plan_of(const ChunkCase& c, int chunks, const NetOptions& net) {
  const Program program = program_of(c, net);
  Plan plan;
  for (const Region& span : c.spans) {
    plan.regions.push_back(region_of(program, span.first, span.last, chunks));
  }
  return plan;
}

SampleValues run_case(const ChunkCase& c, Stream& stream, const TapeOptions& options,
                      const NetOptions& net) {
  CaseRun run(c, stream, options, net);
  run.forward();
  SampleValues found;
  for (const Tensor& t : run.output_tensors()) found.outputs.push_back(values(t));
  if (!options.recording) return found;
  run.backward();
  for (const Tensor& t : run.take_gradients()) {
    found.gradients.push_back(t ? values(t) : std::vector<double>());
  }
  return found;
}

PlannedStep step_of(const ChunkCase& c, const NetOptions& net) {
  return [&c, net](Stream& stream, const TapeOptions& options) {
    CaseRun run(c, stream, options, net);
    run.forward();
    std::vector<Tensor> results = run.output_tensors();
    run.backward();
    for (const Tensor& t : run.take_gradients()) results.push_back(t);
    return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : results;
  };
}

double largest_difference(const std::vector<std::vector<double>>& a,
                          const std::vector<std::vector<double>>& b) {
  check(a.size() == b.size(), a.size(), " tensors against ", b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, difference(a[i], b[i]));
  return largest;
}

}  // namespace spool::testing
