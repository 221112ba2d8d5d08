// An op written with public headers alone, in a region in chunks.

#include "spool/autograd/chunks/cut.h"
#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace research {

using namespace spool;

// y (+)= factor * a * b, or factor * a without b; all f32.
struct Product {
  static constexpr const char* name = "research_product";
  Grad y;
  View a, b = {};
  float factor = 1;
  Cost cost() const { return {2.0 * static_cast<double>(a.numel()), bytes(y, a, b)}; }
};

void run(const Product& k, CpuStream& stream) {
  const float *a = k.a.as<float>(), *b = k.b.as<float>();
  float* const y = k.y.view.as<float>();
  const bool add = k.y.accumulate;
  const float factor = k.factor;
  stream.parallel_for(k.a.numel(), 1 << 14, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float product = factor * a[i] * (b ? b[i] : 1);
      y[i] = add ? y[i] + product : product;
    }
  });
}

// y = x^2, of rows.
struct Squared final : Op {
  const char* name() const override { return "squared"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Product{.y = y, .a = x, .b = x});
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(Product{.y = b.grad_input(0), .a = dy, .b = x, .factor = 2});
  }
};

// y = 3x, of a parameter; counts its runs.
struct Tripled final : Op {
  int& runs;
  explicit Tripled(int& r) : runs(r) {}

  const char* name() const override { return "tripled"; }
  const char* indices() const override { return "oc->oc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    ++runs;
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Product{.y = y, .a = x, .factor = 3});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    ++runs;
    auto [dy] = b.grad_outputs<1>();
    b.launch(Product{.y = b.grad_input(0), .a = dy, .factor = 3});
  }
};

}  // namespace research

namespace spool::testing {
namespace {

class UserOpsInChunks : public ::testing::Test {
 protected:
  CpuStream stream{size_t{16} << 20, 2};
  Parameter weight{.name = "weight", .data = normal({6, 6}, DType::f32, stream, 1)};
  Tensor x = normal({2, 10, 6}, DType::f32, stream, 2),
         dy = normal({2, 10, 6}, DType::f32, stream, 3);
  int runs = 0;

  // tripled, linear, squared, linear.
  Var apply_to(const Var& h) {
    const Var w = apply<research::Tripled>(h.tape(), {weight}, runs);
    return linear(apply<research::Squared>(h.tape(), {linear(h, w)}), w);
  }
  std::vector<std::vector<double>> results(const Plan& plan) {
    runs = 0;
    Tape tape(stream, {.plan = plan});
    const Var h = tape.input(x, true), y = apply_to(h);
    std::vector<std::vector<double>> all{values(y.tensor())};
    tape.backward({{y, dy}});
    all.push_back(values(std::exchange(weight.grad, {})));
    all.push_back(values(tape.grad(h)));
    return all;
  }
};

TEST_F(UserOpsInChunks, HaveTheNumbersOfOneChunk) {
  const auto whole = results({});
  Plan plan;
  {
    Tape tape(stream);
    apply_to(tape.input(x)).tensor();
    const Cut c = cut(tape.program(), 0, 3);
    EXPECT_EQ(c.extent, 20);
    EXPECT_EQ(c.nodes, (std::vector<NodeId>{1, 2, 3}));
    plan.regions = {{0, 3, 1, find_leaves(tape.program(), 0, 3)}};
  }
  for (const int chunks : {2, 3, 7, 20}) {
    plan.regions[0].chunks = chunks;
    const auto found = results(plan);
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_LT(difference(found[i], whole[i]), 1e-5) << i;
    EXPECT_EQ(runs, 2) << "an op of a parameter runs once, and is differentiated once";
  }
}

}  // namespace
}  // namespace spool::testing
