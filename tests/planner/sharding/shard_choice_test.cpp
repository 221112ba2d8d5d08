// runs: numbers
// What each policy makes of small programs.  models/families has those of the bundled models.

#include "spool/planner/sharding/shard_choice.h"

#include "spool/autograd/ops.h"
#include "spool/autograd/parameters.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

struct Recorded {
  MetaStream stream{Machine{}};
  Parameters parameters{stream, DType::f32};
  Program program = {};
  bool trainable = true;

  Parameter& add(const char* name, const Shape& shape) {
    Parameter& p = parameters.add(name, shape);
    p.trainable = trainable;
    return p;
  }
  template <class Net>
  void record(const Shape& input, const Net& net) {
    Tape tape(stream, {.backward_follows = true});
    net(tape.input(Tensor({input}, stream)));
    program = tape.take_program();
  }
  std::map<ValueId, Sharding> stored_as(const Recorded& other, const Assignment& how) const {
    std::map<ValueId, Sharding> all;
    for (const auto& [v, s] : how.given) {
      for (ValueId own = 0; own < program.values.next_id(); ++own) {
        const Parameter* const p = program.values[own].parameter;
        if (p && p->name == other.program.values[v].parameter->name) all[own] = s;
      }
    }
    return all;
  }
};

void record_mlp(Recorded& net, int64_t rows, int64_t inner = 64) {
  Parameter &up = net.add("up", {inner, 32}), &bias = net.add("bias", {inner}),
            &down = net.add("down", {32, inner});
  net.record({rows, 32}, [&](const Var& x) { sum(linear(gelu(linear(x, up), bias), down)); });
}

ShardChoice choose(const Recorded& net, const char* mesh, ShardPolicy policy,
                   const std::map<ValueId, Sharding>& stored = {}) {
  const MeshAxes axes = parse_mesh(mesh);
  return choose_shards(net.program, axes, mesh_machine("h200", axes), policy, stored);
}

// "n- n- --": by op and axis.
std::string in_words(const ShardChoice& choice, size_t axes) {
  std::string words;
  for (const Strategy& s : choice.how.nodes) {
    if (!words.empty()) words += ' ';
    for (size_t a = 0; a < axes; ++a) words += s.axes[a].index == ' ' ? '-' : s.axes[a].index;
  }
  return words;
}

TEST(ShardPolicies, CutAnMlp) {
  Recorded net;
  record_mlp(net, 16);
  EXPECT_EQ(in_words(choose(net, "2", ShardPolicy::none), 1), "- - - -");
  EXPECT_EQ(in_words(choose(net, "2x4", ShardPolicy::rows), 2), "nn nn nn nn");
  EXPECT_EQ(in_words(choose(net, "4", ShardPolicy::megatron), 1), "o c k -");
  EXPECT_EQ(in_words(choose(net, "1x4", ShardPolicy::megatron), 2), "-o -c -k --");
  EXPECT_EQ(in_words(choose(net, "1x4", ShardPolicy::rows), 2), "-n -n -n -n");
  EXPECT_EQ(in_words(choose(net, "1", ShardPolicy::megatron), 1), "- - - -");
}

// One number has no rows, and what is made of parameters alone has none of the batch.
TEST(ShardPolicies, CutRowsWhereThereAreSome) {
  Recorded net;
  Parameter &a = net.add("a", {32, 32}), &b = net.add("b", {32, 32});
  net.record({16, 32}, [&](const Var& x) { scale(sum(linear(x, mul(x.tape().input(a), b))), 2); });
  EXPECT_EQ(in_words(choose(net, "2", ShardPolicy::rows), 1), "- n n -");
}

TEST(ShardPolicies, StoreWhatIsSharedOnce) {
  Recorded net;
  record_mlp(net, 16);
  for (const auto& [v, s] : choose(net, "2", ShardPolicy::rows).how.given) {
    EXPECT_EQ(s[0], State::shared());
  }
  for (const auto& [v, s] : choose(net, "2", ShardPolicy::none).how.given) {
    EXPECT_EQ(s, Sharding{});
  }
}

// An evaluation has no gradients: what training shares is whole there.
TEST(ShardPolicies, KeepParametersAsTheyAreStored) {
  Recorded training, evaluation;
  evaluation.trainable = false;
  record_mlp(training, 16);
  record_mlp(evaluation, 4);
  for (const ShardPolicy policy : enumerators<ShardPolicy>()) {
    const ShardChoice trained = choose(training, "2x2", policy);
    const auto stored = evaluation.stored_as(training, trained.how);
    ASSERT_EQ(stored.size(), 3u);
    const ShardChoice found = choose(evaluation, "2x2", policy, stored);
    for (const auto& [v, s] : stored) {
      for (size_t a = 0; a < 2; ++a) {
        EXPECT_EQ(found.how.given.at(v)[a], s[a] == State::shared() ? State::whole() : s[a]);
      }
    }
  }
}

TEST(ShardPolicies, RefuseWhatDoesNotDivideWithTheNumbers) {
  Recorded net;
  record_mlp(net, 6, /*inner=*/10);
  EXPECT_EQ(error_of([&] { choose(net, "4", ShardPolicy::rows); }),
            "rows do not divide on the mesh 4: linear nk,ok,+o->no of up (node 0): the input (6, "
            "32): its "
            "dimension 0 is 6, which 4 ranks do not divide; 1, 2 or 3 would");
  const ErrorFields fields = expect_error(
      ErrorKind::invalid,
      {"no op of the model can be cut along axis 1 of the mesh, which has 3 ranks; ",
       "; gelu nc,c->nc of bias (node 1): the output of linear (6, 10): its dimension 1 "
       "is 10, which 3 ranks do not divide; 1 or 2 would"},
      [&] { choose(net, "2x3", ShardPolicy::megatron); });
  EXPECT_EQ(fields.settings, (std::vector<std::string>{"mesh", "shard"}));
}

TEST(ShardPolicies, SayWhatStaysWhole) {
  Recorded net;
  record_mlp(net, 8, /*inner=*/10);
  const ShardChoice found = choose(net, "4", ShardPolicy::megatron);
  ASSERT_EQ(found.uncut.size(), 1u);
  EXPECT_EQ(found.uncut[0].node, 1);
  EXPECT_EQ(found.uncut[0].axis, 0);
  EXPECT_EQ(
      found.uncut[0].why,
      "the output of linear (8, 10): its dimension 1 is 10, which 4 ranks do not divide; 1 or "
      "2 would");
}

}  // namespace
}  // namespace spool::testing
