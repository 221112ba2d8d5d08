// Seven linears, of which annotations say op by op what of the saved values waits on the host: once
// as a plan, made from the annotations of a tape that was looked at beforehand, and once with
// scopes, opened in the net itself.  Both tell the same table, and the numbers are those of the
// plain net to the last bit.

#include <array>
#include <cstdio>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/planner/annotations.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"

namespace research {

using namespace spool;

constexpr size_t layers = 7;
constexpr size_t budget = size_t{16} << 20;  // bytes, of the device and of the host

// Of linear0 to linear6.  A region's inputs are what is made before it and saved in it; what is
// inside is what is made and saved there.
const std::array<Annotation, layers> annotations = {{
    {.region = 0, .offload_inputs = true},
    {.region = 0, .offload_inputs = true},
    {.region = 1, .offload_inputs = true, .offload_inside = true},
    {},
    {.region = 2, .offload_inside = true},
    {.region = 3, .offload_inputs = true, .checkpoint = true},
    {},
}};

struct Row {
  const char* is;  // what the linear saves as its input
  bool on_host;    // between forward and backward
};
const std::array<Row, layers> expected = {{{"x", true},
                                           {"out0", false},
                                           {"out1", true},
                                           {"out2", false},
                                           {"out3", false},
                                           {"out4", true},
                                           {"out5", false}}};

using Bits = std::vector<std::vector<float>>;

struct Net {
  std::vector<Parameter> weights;
  Tensor x, dy;  // (4, 4), (4, 4)

  explicit Net(Stream& stream) {
    Random random(1);
    const auto normal = [&] {
      std::vector<float> all(16);
      for (float& v : all) v = random.normal();
      return make_tensor<float>({4, 4}, all, stream);
    };
    for (size_t i = 0; i < layers; ++i) weights.push_back({.name = "weight", .data = normal()});
    x = normal();
    dy = normal();
  }

  Var plain(Tape& tape) {
    Var h = tape.input(x);
    for (Parameter& w : weights) h = linear(h, w);
    return h;
  }

  // The annotations as scopes.
  Var scoped(Tape& tape) {
    const auto step = [&](size_t i, const Var& h) { return linear(h, weights[i]); };
    Var h = tape.input(x);
    h = segment(tape, {.offload_inputs = true}, [&] { return step(1, step(0, h)); });
    h = segment(tape, {.offload_inputs = true, .offload_inside = true}, [&] { return step(2, h); });
    h = step(3, h);
    h = segment(tape, {.offload_inside = true}, [&] { return step(4, h); });
    // linear5 is to run again where backward needs what it made.  Here it does not: out5, which
    // linear6 saves, is read outside the checkpoint and so is saved like any other value.  It would
    // run twice if out5 were to be recomputed, or if linear6 were in the checkpoint as well.
    h = checkpoint(tape, [&] { return step(5, h); }, {.offload_inputs = true});
    return step(6, h);
  }

  // The output, then every gradient.
  Bits backward(Tape& tape, const Var& y) {
    Bits bits = {read<float>(y.tensor())};
    tape.backward({Root{y, dy}});
    for (Parameter& w : weights) {
      bits.push_back(read<float>(w.grad));
      w.grad = {};
    }
    return bits;
  }
};

// Prints where the inputs of the linears are, and whether it is where they should be.
bool table(const Tape& tape) {
  bool right = true;
  std::printf("  saved input of  is    between forward and backward\n");
  for (size_t i = 0; i < layers; ++i) {
    const Value& value = tape.values()[tape.nodes()[i].inputs[0]];
    const bool on_host = value.saved && !value.on_device;
    right &= on_host == expected[i].on_host;
    std::printf("  linear%zu         %-4s  %s%s\n", i, expected[i].is, on_host ? "host" : "device",
                on_host == expected[i].on_host ? "" : ", WRONG");
  }
  return right;
}

bool run(const char* how, Net& net, Stream& stream, const Plan& plan, Var (Net::*forward)(Tape&),
         const Bits& plain) {
  HostLink link(stream, budget);
  Offloader offloader(link);
  Tape tape(stream, {.plan = plan, .offloader = &offloader});
  const Var y = (net.*forward)(tape);
  const auto [tensors, bytes] = offloader.sent();
  std::printf("%s: %d tensors, %d bytes, on the host\n", how, static_cast<int>(tensors),
              static_cast<int>(bytes));
  const bool right = table(tape) && tensors == 3 && bytes == 192;
  const bool equal = net.backward(tape, y) == plain;
  std::printf("  output and gradients are %s of the plain net\n", equal ? "those" : "NOT THOSE");
  return right && equal;
}

}  // namespace research

int main() {
  using namespace research;
  CpuStream stream(budget, /*threads=*/1);
  Net net(stream);
  Tape plain(stream);
  const Var y = net.plain(plain);
  const Plan plan = annotated_plan(annotations, plain);
  std::printf("The plan:\n%s\n", diff({}, plan, plain).c_str());
  const Bits bits = net.backward(plain, y);

  bool good = run("By the plan", net, stream, plan, &Net::plain, bits);
  good &= run("By scopes", net, stream, {}, &Net::scoped, bits);
  return good ? 0 : 1;
}
