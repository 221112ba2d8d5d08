// Chooses by hand which saved values are offloaded to the host between forward and backward, in a
// net of seven linears.  The choice is made in two ways: by a plan, which annotates each op of a
// tape recorded beforehand, and by scopes in the net's own code.  Both offload the same values, and
// the output and gradients equal the plain net's to the last bit.

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
constexpr size_t budget = size_t{16} << 20;  // bytes of the device, and of the host

// One annotation for each of linear0 to linear6.  Ops with the same number form a region.
// offload_inputs offloads values that are computed before the region and saved in it,
// offload_inside values that are computed and saved in it.
const std::array<Annotation, layers> annotations = {{
    {.region = 0, .offload_inputs = true},
    {.region = 0, .offload_inputs = true},
    {.region = 1, .offload_inputs = true, .offload_inside = true},
    {},
    {.region = 2, .offload_inside = true},
    {.region = 3, .offload_inputs = true, .checkpoint = true},
    {},
}};

// The input that a linear saves, and whether it should be on the host until backward.
struct SavedInput {
  const char* value;
  bool on_host;
};
const std::array<SavedInput, layers> expected = {{{"x", true},
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

  // The same net with scopes that say what the annotations say.
  Var scoped(Tape& tape) {
    const auto step = [&](size_t i, const Var& h) { return linear(h, weights[i]); };
    Var h = tape.input(x);
    h = segment(tape, {.offload_inputs = true}, [&] { return step(1, step(0, h)); });
    h = segment(tape, {.offload_inputs = true, .offload_inside = true}, [&] { return step(2, h); });
    h = step(3, h);
    h = segment(tape, {.offload_inside = true}, [&] { return step(4, h); });
    // A checkpoint recomputes what backward needs of the values computed in it.  Here that is
    // nothing: out5 is saved by linear6, outside the checkpoint, like any other value.  linear5
    // would be recomputed if linear6 were in the checkpoint as well.  The library's log says so.
    h = checkpoint(tape, [&] { return step(5, h); }, {.offload_inputs = true});
    return step(6, h);
  }

  // Runs backward.  Returns the output, then every gradient.
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

// Prints whether each linear's saved input is on the host; false if one is not where expected.
bool print_places(const Tape& tape) {
  bool right = true;
  std::printf("  saved input of  value between forward and backward\n");
  for (size_t i = 0; i < layers; ++i) {
    const bool on_host = tape.is_packed(tape.nodes()[i].inputs[0]);
    right &= on_host == expected[i].on_host;
    std::printf("  linear%zu         %-4s  %s%s\n", i, expected[i].value,
                on_host ? "host" : "device", on_host == expected[i].on_host ? "" : ", WRONG");
  }
  return right;
}

// One step in one of the two ways; true if it offloads what it should and equals the plain net.
bool run(const char* way, Net& net, Stream& stream, const Plan& plan, Var (Net::*forward)(Tape&),
         const Bits& plain) {
  HostLink link(stream, budget);
  Offloader offloader(link);
  Tape tape(stream, {.plan = plan, .offloader = &offloader});
  const Var y = (net.*forward)(tape);
  const auto [tensors, bytes] = offloader.offloaded();
  std::printf("%s: %d tensors, %d bytes, on the host\n", way, static_cast<int>(tensors),
              static_cast<int>(bytes));
  const bool right = print_places(tape) && tensors == 3 && bytes == 192;
  const bool equal = net.backward(tape, y) == plain;
  std::printf("  output and gradients %s the plain net's\n", equal ? "equal" : "DIFFER FROM");
  return right && equal;
}

}  // namespace research

int main() {
  using namespace research;
  CpuStream stream(budget, /*threads=*/1);
  Net net(stream);
  Tape plain(stream);
  const Var y = net.plain(plain);
  const Plan plan = annotated_plan(annotations, plain.program());
  std::printf("The plan:\n%s\n", diff({}, plan, plain.program()).c_str());
  const Bits bits = net.backward(plain, y);

  bool good = run("By the plan", net, stream, plan, &Net::plain, bits);
  good &= run("By scopes", net, stream, {}, &Net::scoped, bits);
  return good ? 0 : 1;
}
