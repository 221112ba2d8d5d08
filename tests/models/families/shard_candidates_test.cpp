// runs: numbers
// Candidates for how a model is cut: each found one is the cheapest at its price of a byte.

#include "spool/planner/sharding/shard_candidates.h"

#include <gtest/gtest.h>

#include <set>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/families/families.h"
#include "spool/models/families/model.h"

namespace spool::testing {
namespace {

constexpr int64_t batch = 8, tokens = 64;

struct Recorded {
  MetaStream stream{Machine{}};
  std::shared_ptr<Model> model;
  Program program = {};

  explicit Recorded(const char* preset, int layers = 2) {
    const ModelConfig config = model_preset(preset)->config.with("layers", layers);
    model = config.make(DType::bf16, stream, tokens);
    Tape tape(stream, {.runs = false, .backward_follows = true});
    const Tensor in({Shape{batch, tokens}, DType::i32}, stream);
    model->loss(tape.input(in), tape.input(in), /*dropout=*/0);
    program = tape.take_program();
  }
};

double cost(const ShardChoice& choice, double price) {
  return choice.seconds + price * static_cast<double>(choice.bytes);
}

TEST(ShardCandidates, HaveTheCheapestForEachPriceOfAByte) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    const Recorded recorded(preset);
    for (const char* text : {"2", "4", "2x2"}) {
      SCOPED_TRACE(sentence(preset, " on ", text));
      const MeshAxes mesh = parse_mesh(text);
      const MeshMachine machine = mesh_machine("h200", mesh);
      const ShardCandidates found = shard_candidates(recorded.program, mesh, machine);
      std::set<std::string> names;
      for (const ShardCandidate& c : found.all) names.insert(c.name);
      EXPECT_EQ(names.size(), found.all.size());
      ShardPrices prices(recorded.program, mesh, machine);
      for (const double price : {1e-15, 1e-13, 1e-12, 1e-11, 1e-9}) {
        const double cheapest = cost(cheapest_choice(prices, price), price);
        for (const ShardCandidate& c : found.all) {
          if (c.hides_sums) continue;  // its seconds are other ones
          // Of a parameter that several ops read, the best storage need not be found.
          EXPECT_GE(cost(c.choice, price), 0.99 * cheapest) << c.name << " at " << price;
        }
      }
      // Found ones rise in seconds and fall in bytes, and so do those that hide sums.
      const ShardCandidate* before = nullptr;
      for (const ShardCandidate& c : found.all) {
        if (!c.name.starts_with("found")) continue;
        if (before && before->hides_sums == c.hides_sums) {
          EXPECT_GE(c.choice.seconds, 0.99 * before->choice.seconds) << c.name;
          EXPECT_LE(static_cast<double>(c.choice.bytes),
                    1.01 * static_cast<double>(before->choice.bytes))
              << c.name;
        }
        before = &c;
      }
      EXPECT_TRUE(before);
    }
  }
}

// Twelve layers have the tables of one.
TEST(ShardCandidates, AreThoseOfPricesThatEqualOpsDoNotShare) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    const Recorded recorded(preset, /*layers=*/12);
    for (const char* text : {"4", "2x2"}) {
      const MeshAxes mesh = parse_mesh(text);
      const MeshMachine machine = mesh_machine("h200", mesh);
      ShardPrices shared(recorded.program, mesh, machine),
          apart(recorded.program, mesh, machine, /*shares_tables=*/false);
      for (const bool hides_sums : {false, true}) {
        shared.hide_sums(hides_sums);
        apart.hide_sums(hides_sums);
        for (const double price : {1e-15, 1e-12, 1e-10}) {
          SCOPED_TRACE(sentence(preset, " on ", text, " at ", price));
          const ShardChoice one = cheapest_choice(shared, price),
                            other = cheapest_choice(apart, price);
          EXPECT_EQ(one.seconds, other.seconds);
          EXPECT_EQ(one.bytes, other.bytes);
          EXPECT_EQ(one.how.given, other.how.given);
        }
      }
    }
  }
}

TEST(ShardCandidates, AreTheSameEachTime) {
  const Recorded recorded("gpt2-tiny");
  const MeshAxes mesh = parse_mesh("2x2");
  const MeshMachine machine = mesh_machine("h200", mesh);
  const ShardCandidates one = shard_candidates(recorded.program, mesh, machine),
                        other = shard_candidates(recorded.program, mesh, machine);
  ASSERT_EQ(one.all.size(), other.all.size());
  for (size_t i = 0; i < one.all.size(); ++i) {
    EXPECT_EQ(one.all[i].name, other.all[i].name);
    EXPECT_EQ(one.all[i].choice.how.given, other.all[i].choice.how.given);
    EXPECT_EQ(one.all[i].choice.seconds, other.all[i].choice.seconds);
  }
}

TEST(ShardCandidates, SayWhichPoliciesAreRefused) {
  Recorded odd("gpt2-tiny");
  const MeshAxes mesh = parse_mesh("16");  // more than rows
  const ShardCandidates found = shard_candidates(odd.program, mesh, mesh_machine("h200", mesh));
  ASSERT_FALSE(found.refused.empty());
  EXPECT_EQ(found.refused.front().name, "rows");
  EXPECT_NE(found.refused.front().why.find("do not divide"), std::string::npos);
}

}  // namespace
}  // namespace spool::testing
