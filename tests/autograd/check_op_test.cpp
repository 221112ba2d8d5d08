// runs: threads
// check_op() finds ops that are wrong in any one way, says so in the right sentence, and finds
// nothing wrong with one that is right.

#include "spool/autograd/checks/check_op.h"

#include <algorithm>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

enum class Fault {
  none,
  wrong_gradient,
  unwritten,        // the last element of a gradient
  reads_unsaved,    // what it did not say it saves
  false_notation,   // each element depends on another row
  ignores_input,    // its notation has an input that matters to nothing
  counts_runs,      // other numbers each time
  counts_own_runs,  // other numbers when the same op runs again
  by_threads,       // other numbers with more threads
  by_memory,        // other numbers where a saved tensor has moved
  by_needs,         // a gradient is wrong if the other is not needed
  by_chunks,        // other numbers in chunks of its own
  hidden_memory,    // allocates what no rehearsal sees
  no_cost,
  rounds,  // to few digits in f32
};

// y = x^2 + w, and dx = 2 x dy, dw = dy.
struct PlantedForward {
  static constexpr const char* name = "planted_forward";
  View y, x, w;
  Fault fault;
  double more;  // added to each element
  Cost cost() const {
    return fault == Fault::no_cost ? Cost() : Cost{2.0 * static_cast<double>(x.numel()), 0};
  }
};

struct PlantedBackward {
  static constexpr const char* name = "planted_backward";
  Grad dx, dw;
  View dy, x;
  Fault fault;
  double factor;  // of dw
  Cost cost() const {
    return fault == Fault::no_cost ? Cost() : Cost{2.0 * static_cast<double>(x.numel()), 0};
  }
};

template <class T>
void compute(const PlantedForward& k, int threads) {
  const T *x = k.x.as<T>(), *w = k.w.as<T>();
  T* y = k.y.as<T>();
  const int64_t n = k.x.numel(), columns = k.x.shape()[-1];
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] * x[i] + static_cast<T>(k.more);
    if (k.fault != Fault::ignores_input) y[i] += w[i];
    if (k.fault == Fault::false_notation) y[i] += x[(i + columns) % n];
    if (k.fault == Fault::by_threads) y[i] += static_cast<T>(threads - 1);
    if (k.fault == Fault::rounds && sizeof(T) == 4) y[i] = std::round(y[i] * 100) / 100;
  }
}

template <class T>
void compute(const PlantedBackward& k) {
  const T *x = k.x.as<T>(), *dy = k.dy.as<T>();
  const int64_t n = k.x.numel(), columns = k.x.shape()[-1];
  const auto write = [](const Grad& to, int64_t i, T value) {
    if (to) to.view.as<T>()[i] = to.accumulate ? to.view.as<T>()[i] + value : value;
  };
  for (int64_t i = 0; i < n - (k.fault == Fault::unwritten); ++i) {
    T dx = (k.fault == Fault::wrong_gradient ? 3 : 2) * x[i] * dy[i];
    if (k.fault == Fault::false_notation) dx += dy[(i + n - columns) % n];
    write(k.dx, i, dx);
    write(k.dw, i, k.fault == Fault::ignores_input ? 0 : static_cast<T>(k.factor) * dy[i]);
  }
}

void run(const PlantedForward& k, CpuStream& stream) {
  k.x.dtype() == DType::f64 ? compute<double>(k, stream.threads())
                            : compute<float>(k, stream.threads());
}
void run(const PlantedBackward& k, CpuStream&) {
  k.x.dtype() == DType::f64 ? compute<double>(k) : compute<float>(k);
}

struct Planted final : Op {
  Fault fault;
  mutable int runs = 0;
  mutable const std::byte* place = nullptr;  // of x in forward
  explicit Planted(Fault f) : fault(f) {}

  const char* name() const override { return "planted"; }
  const char* indices() const override { return "nc,nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  int64_t max_chunks(const Specs&) const override { return 4; }
  Slots saves(const Needs&) const override {
    return fault == Fault::reads_unsaved ? Slots() : Slots{in(0)};
  }

  void forward(Forward& f) const override {
    static int all_runs = 0;
    auto [x, w] = f.inputs<2>();
    place = x.data();
    double more = 0;
    if (fault == Fault::counts_runs) more = ++all_runs;
    if (fault == Fault::counts_own_runs) more = runs++;
    if (fault == Fault::by_chunks) more = f.chunks() - 1;
    Tensor hidden;
    if (fault == Fault::hidden_memory && f.stream().device().type != DeviceType::meta) {
      hidden = f.scratch({Shape{100'000}});
    }
    f.launch(PlantedForward{.y = f.outputs<1>()[0], .x = x, .w = w, .fault = fault, .more = more});
  }

  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    double factor = 1;
    if (fault == Fault::by_needs && !b.needs_grad(0)) factor = 2;
    if (fault == Fault::by_memory && x.data() != place) factor = 2;
    const auto [dx, dw] = b.grad_inputs<2>();
    b.launch(
        PlantedBackward{.dx = dx, .dw = dw, .dy = dy, .x = x, .fault = fault, .factor = factor});
  }
};

OpSample sample_with(Fault fault) {
  const auto apply_planted = [fault](const std::vector<Operand>& x) {
    return std::vector{apply<Planted>(x[0].var->tape(), {x[0], x[1]}, fault)};
  };
  return {.name = "sample",
          .inputs = {{.shape = {4, 3}}, {.shape = {4, 3}, .parameter = true}},
          .apply = apply_planted,
          .chunks = 2,
          .types = {DType::f64, DType::f32}};
}

std::string all_of(const std::vector<std::string>& failures) {
  std::string all;
  for (const std::string& failure : failures) all += failure + '\n';
  return all;
}

TEST(CheckOp, FindsNothingWrongWithAnOpThatIsRight) {
  EXPECT_EQ(all_of(check_op(sample_with(Fault::none))), "");
  expect_op(sample_with(Fault::none));
}

struct Wrong {
  const char* name;
  Fault fault;
  std::vector<std::string> words;  // of one sentence
};

class CheckOpFinds : public ::testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(
    Fault, CheckOpFinds,
    ::testing::Values(
        Wrong{"AWrongGradient",
              Fault::wrong_gradient,
              {"sample, gradients in f64: element", "of the gradient of input 0 is",
               "and by finite differences", "2e-08 is the most"}},
        Wrong{"AnUnwrittenElement",
              Fault::unwritten,
              {"sample, a run in f64: planted: element 11 of the gradient of input 0",
               "was not written"}},
        Wrong{"AReadOfWhatIsNotSaved", Fault::reads_unsaved, {"sample, a run in f64: planted"}},
        Wrong{"AFalseNotation",
              Fault::false_notation,
              {"sample, notation: 2 parts along n do not make up the whole"}},
        Wrong{"AnInfluenceThatTheNotationForbids",
              Fault::false_notation,
              {"sample, notation: planted: element", "of the input 'nc'", "differ in n"}},
        Wrong{"AnInputThatDoesNotMatter",
              Fault::ignores_input,
              {"sample, notation: no output changes with input 1"}},
        Wrong{"OtherBitsEachTime",
              Fault::counts_runs,
              {"sample, a run in f64: the same run again has other bits: element 0 of output 0"}},
        Wrong{"OtherBitsWhenRecomputed",
              Fault::counts_own_runs,
              {"sample, recomputing: it changes gradients: element", "(f32)"}},
        Wrong{"OtherBitsWithMoreThreads",
              Fault::by_threads,
              {"sample, threads: 2 threads do not compute what one does: element 0 of output 0"}},
        Wrong{"OtherBitsWhenOffloaded",
              Fault::by_memory,
              {"sample, offloading: it changes gradients: element 0 of the gradient of input 1"}},
        Wrong{"AGradientThatNeedsAnother",
              Fault::by_needs,
              {"sample, without the gradient of input 0: element 0 of the gradient of input 1"}},
        Wrong{"ChunksOfItsOwn",
              Fault::by_chunks,
              {"sample, 2 chunks of its own: element", "of output 0", "and in one"}},
        Wrong{"MemoryThatNoRehearsalSees",
              Fault::hidden_memory,
              {"sample, memory: an arena of the peak that a rehearsal foretells",
               "does not suffice"}},
        Wrong{"AKernelWithoutACost",
              Fault::no_cost,
              {"sample, memory: the cost() of planted_forward has neither flops nor bytes"}},
        Wrong{"TooFewDigits",
              Fault::rounds,
              {"sample, precision of f32: element", "of output 0 is", "and in f64"}}),
    [](const auto& wrong) { return wrong.param.name; });

TEST_P(CheckOpFinds, OneFault) {
  const std::vector<std::string> failures = check_op(sample_with(GetParam().fault));
  const auto has_all_words = [](const std::string& text) {
    return std::ranges::all_of(GetParam().words,
                               [&](const std::string& word) { return contains(text, word); });
  };
  EXPECT_TRUE(std::ranges::any_of(failures, has_all_words)) << all_of(failures);
}

TEST(CheckOp, FindsAWrongGradientOfAKernelThatHasOnlyF32) {
  OpSample right = sample_with(Fault::none), wrong = sample_with(Fault::wrong_gradient);
  right.types = wrong.types = {DType::f32};
  EXPECT_EQ(all_of(check_op(right)), "");
  EXPECT_TRUE(contains(all_of(check_op(wrong)), "sample, gradients in f32: element"));
}

TEST(CheckOp, ComparesThreadsOnLargeShapesToo) {
  OpSample sample = sample_with(Fault::by_threads);
  sample.inputs[0].large = sample.inputs[1].large = {40, 30};
  size_t found = 0;
  for (const std::string& failure : check_op(sample)) found += contains(failure, "threads: ");
  EXPECT_EQ(found, 4u) << "two shapes, two numbers of threads";
}

TEST(CheckOp, ExpectOpThrowsTheFailures) {
  expect_error(ErrorKind::invalid, {"sample, gradients in f64", "input 0"},
               [] { expect_op(sample_with(Fault::wrong_gradient)); });
}

TEST(CheckOp, RefusesSamplesThatSayTooLittle) {
  const auto expect_refused = [](OpSample sample, std::string_view words) {
    expect_error(ErrorKind::invalid, {"sample: ", words}, [&] { check_op(sample); });
  };
  OpSample sample = sample_with(Fault::none);
  sample.types = {DType::bf16};
  expect_refused(sample, "begin with f64 or f32");
  sample.types = {DType::f64, DType::i32};
  expect_refused(sample, "are f64, f32 and bf16");
  sample = sample_with(Fault::none);
  sample.apply = nullptr;
  expect_refused(sample, "no function `apply`");
  sample = sample_with(Fault::none);
  sample.inputs = {{.shape = {3}, .below = 4}};
  expect_refused(sample, "no input of the sample has a gradient");
}

TEST(CheckOp, SaysThatASampleAppliesOneOp) {
  OpSample two = sample_with(Fault::none);
  two.apply = [](const std::vector<Operand>& x) {
    return std::vector{scale(add(*x[0].var, *x[0].var), 2)};
  };
  EXPECT_TRUE(contains(all_of(check_op(two)), "the sample applies 2 ops, and is to apply one"));
}

}  // namespace
}  // namespace spool::testing
