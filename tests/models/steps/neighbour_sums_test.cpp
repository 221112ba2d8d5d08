// runs: threads
// Gradients of parameters that ranks share are summed whatever their sizes, and handed on in order.

#include "spool/models/steps/exchange/neighbour_sums.h"

#include <gtest/gtest.h>

#include <deque>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/numbers.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// What hands gradients on, and in which order.
struct Handed final : GradientSink {
  void begin_backward() override { begun = true; }
  void is_final(Parameter& p) override { all.emplace_back(std::string_view(p.name)); }
  void end_backward() override { ended = true; }
  std::vector<std::string> all = {};
  bool begun = false, ended = false;
};

struct Shared {
  const char* name;
  int64_t elements;
  State state;
};

// Small ones, some that are summed together, one that is summed where it is, and others of which no
// number of ranks above 1 divides the elements; the second is of each rank alone.
const std::vector<Shared> parameters{
    {"small", 100, State::shared()},       {"own", 5000, State::whole()},
    {"odd", 100'003, State::shared()},     {"middle", 60'000, State::shared()},
    {"large", 1'200'000, State::shared()}, {"large and odd", 1'200'007, State::shared()},
    {"last", 7, State::shared()}};

// Whole numbers, so that sums are exact in any order.
float number_at(int64_t i, size_t parameter, int rank) {
  return static_cast<float>((i + 31 * static_cast<int64_t>(parameter)) % 97 + 1000 * rank);
}

class RankSums {
 public:
  RankSums(const MeshAxes& mesh, Stream& stream, int rank) : ranks_(mesh, stream) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const int64_t elements = parameters[p].elements;
      Sharding stored;
      for (size_t a = 0; a < mesh.size(); ++a) stored[a] = parameters[p].state;
      Parameter& made = made_.emplace_back();
      made.name = Name::never_freed(parameters[p].name);
      made.part = std::make_shared<ParameterPart>(plain_value({Shape{elements}, DType::f32}),
                                                  stored, mesh, rank, std::nullopt);
      std::vector<float> numbers;
      for (int64_t i = 0; i < elements; ++i) numbers.push_back(number_at(i, p, rank));
      made.grad = make_tensor<float>(Shape{elements}, numbers, stream);
    }
  }

  void sum(Stream& stream, int64_t bucket) {
    NeighbourSums sums(ranks_, stream, &handed_, bucket);
    sums.begin_backward();
    for (Parameter& p : made_) sums.is_final(p);
    sums.end_backward();
  }

  void expect_sums(int rank) {
    const int ranks = ranks_.mesh().ranks();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const std::vector<double> found = values(made_[p].grad);
      const bool is_summed = parameters[p].state == State::shared();
      for (int64_t i = 0; i < std::ssize(found); ++i) {
        float sum = 0;
        for (int r = 0; r < ranks; ++r) sum += is_summed || r == rank ? number_at(i, p, r) : 0;
        ASSERT_EQ(found[static_cast<size_t>(i)], sum) << parameters[p].name << " at " << i;
      }
    }
    std::vector<std::string> names;
    for (const Shared& p : parameters) names.emplace_back(p.name);
    EXPECT_EQ(handed_.all, names);
    EXPECT_TRUE(handed_.begun && handed_.ended);
  }

 private:
  MeshRanks ranks_;
  std::deque<Parameter> made_ = {};
  Handed handed_ = {};
};

TEST(NeighbourSums, AreOfGradientsOfAnySizeInAnyBuckets) {
  for (const char* text : {"2", "3", "2x2"}) {
    const MeshAxes mesh = parse_mesh(text);
    for (const int64_t bucket : {int64_t{1}, int64_t{150'000}, int64_t{1} << 30}) {
      SCOPED_TRACE(sentence(text, " in buckets of ", bucket));
      run_ranks(mesh.ranks(), [&](const std::shared_ptr<Communicator>& own) {
        CpuStream stream(size_t{256} << 20, 1);
        stream.join(own);
        RankSums of_rank(mesh, stream, own->rank());
        of_rank.sum(stream, bucket);
        of_rank.expect_sums(own->rank());
      });
    }
  }
}

}  // namespace
}  // namespace spool::testing
