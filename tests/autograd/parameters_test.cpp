#include "spool/autograd/parameters.h"

#include <cmath>
#include <numeric>

#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class ParametersTest : public ::testing::Test {
 protected:
  CpuStream stream_{size_t{4} << 20, 2};
};

TEST_F(ParametersTest, KeepsAddressesAndOrderAsItGrows) {
  Parameters all(stream_);
  Parameter& first = all.add("first", {3});
  Parameter* const address = &first;
  for (int i = 0; i < 100; ++i) all.add("p." + std::to_string(i), {2, 2});
  EXPECT_EQ(all[0], address);
  EXPECT_EQ(&all.named("first"), address);
  EXPECT_EQ(all[100]->name, "p.99");
  EXPECT_EQ(all.size(), 101u);
  EXPECT_EQ(all.numel(), 3 + 100 * 4);
}

TEST_F(ParametersTest, AreCountedAsParameters) {
  Parameters all(stream_, DType::bf16);
  const Parameter& p = all.add("weight", {256, 2});
  EXPECT_EQ(p.data.dtype(), DType::bf16);
  EXPECT_EQ(stream_.memory().live_by[Purpose::parameter], 1024u);
}

TEST_F(ParametersTest, DrawsWhatEachBeginsWith) {
  Parameters all(stream_);
  all.add("zero", {5});
  all.add("one", {5}, ones());
  all.add("normal", {100, 100}, spool::normal(0.5f));
  all.add("given", make_tensor<float>({2}, std::vector<float>{7, 8}, stream_));
  all.initialise(/*seed=*/1);
  EXPECT_EQ(read<float>(all[0]->data), std::vector<float>(5, 0.0f));
  EXPECT_EQ(read<float>(all[1]->data), std::vector<float>(5, 1.0f));
  EXPECT_EQ(read<float>(all[3]->data), (std::vector<float>{7, 8}));
  const std::vector<float> drawn = read<float>(all[2]->data);
  const double squares = std::inner_product(drawn.begin(), drawn.end(), drawn.begin(), 0.0);
  EXPECT_NEAR(std::sqrt(squares / 1e4), 0.5, 0.02);
  all.initialise(/*seed=*/2);
  EXPECT_NE(read<float>(all[2]->data), drawn);
  all.initialise(/*seed=*/1);
  EXPECT_EQ(read<float>(all[2]->data), drawn);
}

TEST_F(ParametersTest, ThatAreTrainedKeepTheirOrderAndNumbers) {
  Parameters all(stream_);
  for (const char* name : {"a", "b", "c"}) all.add(name, {2});
  all[1]->trainable = false;
  EXPECT_EQ(all.trainable(), (std::vector<Parameter*>{all[0], all[2]}));
  EXPECT_EQ(all[2]->number, 2u);
}

TEST_F(ParametersTest, RefusesANameThatIsTakenAndATensorThatIsAbsent) {
  Parameters all(stream_);
  all.add("weight", {2});
  expect_error(ErrorKind::invalid, {"a parameter weight already"}, [&] { all.add("weight", {3}); });
  EXPECT_EQ(all.size(), 1u);
  expect_error(ErrorKind::invalid, {"bias has no tensor"}, [&] { all.add("bias", Tensor{}); });
  expect_error(ErrorKind::invalid, {"no parameter head"}, [&] { all.named("head"); });
}

}  // namespace
}  // namespace spool::testing
