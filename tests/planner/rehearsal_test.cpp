// The report of a rehearsal: what is live at the peak, and kernels that the machine cannot run.

#include "spool/planner/rehearsal.h"

#include <algorithm>
#include <numeric>

#include "spool/autograd/ops.h"
#include "spool/planner/machines/machine.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t N = 512, C = 32;

// A custom kernel, for the cpu alone.
struct Twice {
  static constexpr const char* name = "twice";
  View y, x;
  Cost cost() const { return {static_cast<double>(x.numel()), bytes(y, x)}; }
};
void run(const Twice&, CpuStream&) {}

struct TwiceOp final : Op {
  const char* name() const override { return "twice_op"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    f.launch(Twice{.y = f.outputs<1>()[0], .x = f.inputs<1>()[0]});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override { b.pass(0); }
};

// A net whose activation is its largest tensor: x -> linear -> twice -> gelu.
void step(Stream& stream) {
  Parameter weight{.name = "up"};
  weight.data =
      Tensor({Shape{4 * C, C}}, stream, {.name = weight.name, .purpose = Purpose::parameter});
  const Tensor x({Shape{N, C}}, stream, {.name = "x", .purpose = Purpose::input});
  Tape tape(stream);
  const Var y = gelu(apply<TwiceOp>(tape, {linear(tape.input(x), weight)}));
  const Tensor dy(y.spec(), stream, {.name = "dy", .purpose = Purpose::gradient});
  tape.backward({Root{y, dy}});
  weight.grad = {};
}

const LiveAtPeak* find(const Report& report, std::string_view name) {
  const auto at = std::ranges::find(report.at_peak, name, &LiveAtPeak::name);
  return at == report.at_peak.end() ? nullptr : &*at;
}

EnumArray<Purpose, size_t> sums(const Report& report) {
  EnumArray<Purpose, size_t> by = {};
  for (const LiveAtPeak& live : report.at_peak) by[live.purpose] += live.bytes;
  return by;
}

TEST(Rehearsal, ListsWhatIsLiveAtThePeakTheLargestFirst) {
  const Report report = rehearse(Machine{}, step);
  EXPECT_EQ(sums(report), report.memory.at_peak_by);
  EXPECT_TRUE(std::ranges::is_sorted(report.at_peak, std::ranges::greater{}, &LiveAtPeak::bytes));

  const LiveAtPeak* const weight = find(report, "up");
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->purpose, Purpose::parameter);
  EXPECT_EQ(weight->bytes, 4 * C * C * sizeof(float));
  EXPECT_EQ(weight->spec, (Spec{Shape{4 * C, C}}));
  EXPECT_EQ(weight->op, "");
  EXPECT_EQ(weight->node, -1);

  const LiveAtPeak* const y = find(report, "gelu");
  ASSERT_TRUE(y);
  EXPECT_EQ(y->bytes, N * 4 * C * sizeof(float));
  EXPECT_EQ(y->phase, "forward");
  EXPECT_EQ(y->op, "gelu");
  EXPECT_EQ(y->node, 2);
}

TEST(Rehearsal, NamesTheNodeWhoseBackwardAllocated) {
  const Report report = rehearse(Machine{}, step);
  const auto is_of_gelu = [](const LiveAtPeak& live) {
    return live.phase == "backward" && live.op == "gelu" && live.node == 2;
  };
  const auto at = std::ranges::find_if(report.at_peak, is_of_gelu);
  ASSERT_NE(at, report.at_peak.end());
  EXPECT_EQ(at->name, "twice_op");  // the gradient of its output
  EXPECT_EQ(at->purpose, Purpose::gradient);
}

TEST(Rehearsal, WithTotalsAloneHasTheSameTotals) {
  const Report whole = rehearse(Machine{}, step), totals = rehearse_totals(Machine{}, step);
  EXPECT_TRUE(totals.at_peak.empty());
  EXPECT_EQ(totals.memory.peak, whole.memory.peak);
  EXPECT_EQ(totals.memory.at_peak_by, whole.memory.at_peak_by);
  EXPECT_EQ(totals.seconds, whole.seconds);
  EXPECT_EQ(totals.missing, whole.missing);
}

TEST(Rehearsal, ListsKernelsWithoutAFormForTheMachinesKind) {
  EXPECT_EQ(rehearse(*named_machine("h200"), step).missing, std::vector<std::string>{"twice"});
  EXPECT_TRUE(rehearse(Machine{.architecture = CpuArchitecture{}}, step).missing.empty());
}

TEST(Rehearsal, IsATableInWords) {
  const Report report = rehearse(*named_machine("h200"), step);
  const std::string words = in_words(report, /*max=*/2);
  for (const char* part :
       {"peak ", "parameters\n", "256 KiB  gelu, f32 (512, 128); forward of gelu (node 2)\n",
        " more\n", "kernels without a form for this kind of device: twice\n"}) {
    EXPECT_TRUE(contains(words, part)) << part << "\n" << words;
  }
  EXPECT_FALSE(contains(words, "x, f32")) << words;
  EXPECT_TRUE(contains(in_words(report), "x, f32 (512, 32)\n")) << in_words(report);
  EXPECT_FALSE(contains(in_words(rehearse(Machine{}, step)), "without a form"));
}

}  // namespace
}  // namespace spool::testing
