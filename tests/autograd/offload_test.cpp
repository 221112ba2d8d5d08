// runs: threads
// Saved tensors offloaded to host memory and to disk.

#include "spool/autograd/offload.h"

#include <sys/resource.h>

#include <csignal>

#include "spool/autograd/ops.h"
#include "tests/autograd/saved_tensors_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

class OffloadedTensors : public ChainTest {};

TEST_F(OffloadedTensors, KeepsParametersAndInputsUnlessThePlanOffloadsThem) {
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  Tape tape(stream, options(everything));
  const std::vector<double> before = values(x);
  const Var y = chain(tape.input(x));
  EXPECT_TRUE(is_on_host(tape, tape.nodes()[0].inputs[0]));
  EXPECT_TRUE(is_on_host(tape, tape.nodes()[1].inputs[1])) << "a parameter";
  EXPECT_EQ(values(x), before);
  tape.backward({Root{y, dy}});
  EXPECT_EQ(values(x), before);
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_chain({}));

  Tape scoped(stream, options());
  const Tape::Scope scope(scoped, {.offload_inputs = true, .offload_inside = true});
  const Var z = chain(scoped.input(x));
  EXPECT_FALSE(is_on_host(scoped, scoped.nodes()[1].inputs[1])) << "a parameter";
  Tape kept(stream, options());
  chain(kept.input(x));
  for (size_t v = 0; v < kept.values().size(); ++v) {
    EXPECT_FALSE(is_on_host(kept, static_cast<ValueId>(v)));
  }
}

TEST_F(OffloadedTensors, AStorageIsOffloadedOnce) {
  Tape tape(stream, options({.placement = std::vector(8, Placement::offload)}));
  const Var a = tape.input(x), b = tape.input(x);
  const Var y = add(linear(a, weights[0]), linear(b, weights[1]));
  EXPECT_EQ(offloader.offloaded().tensors, 1);
  tape.backward({Root{y, dy}});
  const Bits once = take_gradients();
  Tape kept(stream);
  const Var c = kept.input(x);
  kept.backward({Root{add(linear(c, weights[0]), linear(c, weights[1])), dy}});
  EXPECT_EQ(take_gradients(), once);
}

TEST_F(OffloadedTensors, ACopyOfAnEarlierTapeIsNotReused) {
  const Plan everything{.placement = std::vector(8, Placement::offload)};
  Tape before(stream, options(everything));
  const Var y = linear(before.input(x), weights[0]);
  link.synchronize();  // a tensor may not change during its transfer
  write<float>(x, std::vector<float>(16, 2));
  const Bits now = gradients_of_chain(options(everything));
  EXPECT_EQ(now, gradients_of_chain({}));
}

TEST_F(OffloadedTensors, TensorsOfAnySizeComeBackUnchanged) {
  for (const Shape& shape : {Shape{0, 4}, Shape{1}, Shape{1, 1}, Shape{3, 7}, Shape{129, 5}}) {
    for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
      for (const int64_t rows : {int64_t{-1}, int64_t{0}, shape[0] / 2, shape[0]}) {
        const Tensor v = normal(shape, type, stream, 9), d = normal(shape, type, stream, 10);
        const auto gradient = [&](const Plan& plan) {
          Tape tape(stream, options(plan));
          const Var in = tape.input(v, true);
          const Var y = scale(scale(gelu(scale(in, 2)), 3), 4);  // gelu saves value 1
          tape.backward({Root{y, d}});
          return values(tape.grad(in));
        };
        Plan plan{.placement = std::vector(2, Placement::offload)};
        plan.offloads.push_back({.value = 1, .rows = rows, .release = 2, .fetch = 2});
        const int64_t before = offloader.returned().tensors;
        EXPECT_EQ(gradient(plan), gradient({})) << shape << ' ' << rows;
        EXPECT_EQ(offloader.returned().tensors, before + 1);
      }
    }
  }
}

TEST_F(OffloadedTensors, TypesThatAreOnlyStoredComeBackUnchanged) {
  const TemporaryDirectory directory;
  Offloader to_disk(link, directory.path(), size_t{1} << 20);
  std::vector<int8_t> bytes(5 * 1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int8_t>(i * 37);
  std::vector<f16> halves(bytes.begin(), bytes.end());
  const Tensor narrow = make_tensor<int8_t>({5, 1000}, bytes, stream);
  const Tensor half = make_tensor<f16>({5, 1000}, halves, stream);
  for (const OffloadTarget target : {OffloadTarget::host, OffloadTarget::disk}) {
    for (const Tensor& t : {narrow, half}) {
      to_disk.before_forward(0);
      auto saved = to_disk.pack(t, {.op = "input", .value = 0}, {.value = 0, .target = target});
      to_disk.begin_backward(1);
      const Tensor back = saved->unpack();
      EXPECT_EQ(values(back), values(t));
      saved.reset();
      to_disk.end_backward();
    }
  }
}

TEST_F(OffloadedTensors, ATooSmallHostIsReportedAndLeaksNothing) {
  const Bits expected = gradients_of_chain({});
  const size_t live = stream.memory().live;
  HostLink small(stream, 2 * HostLink::alignment);
  Offloader to_small(small);
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  expect_error(ErrorKind::memory, {"host: ", " needs "},
               [&] { gradients_of_chain({.plan = everything, .offloader = &to_small}); });
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(small.memory().live, 0u);
  EXPECT_EQ(gradients_of_chain({}), expected);
}

TEST_F(OffloadedTensors, RefusesPlansWithoutOffloaderDirectoryOrRows) {
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  expect_error(ErrorKind::invalid, {"TapeOptions::offloader"},
               [&] { gradients_of_chain({.plan = everything}); });
  Plan to_disk = everything;
  to_disk.offloads.push_back({.value = 2, .target = OffloadTarget::disk});
  expect_error(ErrorKind::invalid, {"value 2", "no directory"},
               [&] { gradients_of_chain(options(to_disk)); });
  Plan too_many = everything;
  too_many.offloads.push_back({.value = 2, .rows = 5});
  expect_error(ErrorKind::invalid, {"5 rows of value 2", "has 4"},
               [&] { gradients_of_chain(options(too_many)); });
}

TEST_F(OffloadedTensors, DiskKeepsTheBits) {
  const TemporaryDirectory directory;
  Offloader to_disk(link, directory.path(), 64 * HostLink::alignment);
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; v += 2) {
    plan.offloads.push_back({.value = v, .rows = v % 8 ? -1 : 3, .target = OffloadTarget::disk});
  }
  const Bits expected = gradients_of_gelu_chain({});
  EXPECT_EQ(gradients_of_gelu_chain({.plan = plan, .offloader = &to_disk}), expected);
  EXPECT_GT(to_disk.disk().peak, 0u);
  EXPECT_EQ(to_disk.disk().live, 0u);
  EXPECT_EQ(link.memory().live, 0u);
}

TEST_F(OffloadedTensors, ATooSmallFileIsReportedAndLeaksNothing) {
  const TemporaryDirectory directory;
  Offloader to_disk(link, directory.path(), HostLink::alignment);
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; ++v) {
    plan.offloads.push_back({.value = v, .target = OffloadTarget::disk});
  }
  const size_t live = stream.memory().live;
  expect_error(ErrorKind::memory, {"disk: "},
               [&] { gradients_of_chain({.plan = plan, .offloader = &to_disk}); });
  EXPECT_EQ(stream.memory().live, live);
}

// A limit on file sizes acts like a disk that fills up, although space was reserved.
TEST_F(OffloadedTensors, AFullDiskDuringAStepIsReportedAndLeaksNothing) {
  const TemporaryDirectory directory;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const size_t live = stream.memory().live;
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; ++v) {
    plan.offloads.push_back({.value = v, .target = OffloadTarget::disk});
  }
  {
    HostLink own(stream, plenty);
    Offloader to_disk(own, directory.path(), 64 * HostLink::alignment);
    rlimit few = before;
    few.rlim_cur = 3 * HostLink::alignment;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    expect_error(ErrorKind::file, {directory.path().native()},
                 [&] { gradients_of_gelu_chain({.plan = plan, .offloader = &to_disk}); });
    EXPECT_EQ(own.memory().live, 0u);
    EXPECT_EQ(to_disk.disk().live, 0u);
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_FALSE(gradients_of_gelu_chain({}).front().empty());
}

TEST_F(OffloadedTensors, ReleasesAtTheLastNodesOrBeforeBackward) {
  const auto nodes = static_cast<NodeId>(weights.size());
  for (const NodeId release : {1, 3, nodes - 1, nodes, nodes + 1}) {  // the last is never reached
    Plan plan{.placement = std::vector(64, Placement::offload)};
    for (ValueId v = 0; v < 16; ++v) {
      plan.offloads.push_back({.value = v, .release = release, .fetch = 0});
    }
    const int64_t before = offloader.returned().tensors;
    EXPECT_EQ(gradients_of_chain(options(plan)), gradients_of_chain({}));
    EXPECT_EQ(offloader.returned().tensors > before, release <= nodes) << release;
  }
}

TEST_F(OffloadedTensors, LowersThePeak) {
  const auto peak = [&](Placement placement) {
    CpuStream fresh(plenty, 1);
    HostLink own(fresh, plenty);
    Offloader to_host(own);
    Tape tape(fresh, {.plan = {.placement = std::vector(64, placement)}, .offloader = &to_host});
    Var h = tape.input(normal({256, 64}, DType::f32, fresh, 1), true);
    for (int i = 0; i < 12; ++i) h = gelu(h);
    const Tensor d = normal({256, 64}, DType::f32, fresh, 2);
    tape.backward({Root{h, d}});
    return fresh.memory().peak;
  };
  EXPECT_LT(peak(Placement::offload), peak(Placement::keep) * 2 / 3);
}

}  // namespace
}  // namespace spool::testing
