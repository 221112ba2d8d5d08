// SumRanks on the cpu: the bits of plain loops from the first rank to the last.

#include "spool/kernels/sum_ranks.h"

#include <optional>

#include "spool/runtime/meta/stream.h"
#include "tests/kernels/sum_ranks_testing.h"

namespace spool::testing {
namespace {

template <class A>
void expect_plain_sums(DType sent, CpuStream& stream) {
  for (const RankCase& c : rank_cases(sent)) {
    SCOPED_TRACE(c.words());
    const RankTensors tensors(c, stream);
    const Numbers wanted = tensors.wanted<A>();
    launch(tensors.kernel(), stream);
    EXPECT_EQ(bits_of(tensors.sums()), bits_of(wanted));
  }
}

TEST(SumRanks, AddsInTheOrderOfTheRanks) {
  CpuStream stream(128 << 20, 2);
  expect_plain_sums<float>(DType::f32, stream);
  expect_plain_sums<float>(DType::bf16, stream);
  expect_plain_sums<double>(DType::f64, stream);
}

// 2^24 + 1 + 1 is 2^24 in f32, and 1 + 1 + 2^24 is more.
TEST(SumRanks, RoundsEachAddition) {
  CpuStream stream(1 << 20, 1);
  const auto number = [&](float x) { return make_tensor<float>({1}, std::vector{x}, stream); };
  const Tensor big = number(0x1p24f), one = number(1), other = number(1), out = number(0);
  const auto sum = [&](const std::vector<const void*>& pieces, const Tensor& own) {
    SumRanks k{.slices = {{.out = out, .own = own}}};
    for (const void* piece : pieces) k.pieces.add(piece);
    launch(k, stream);
    return values(out)[0];
  };
  const void *at_big = big.view().data(), *at_one = one.view().data();
  EXPECT_EQ(sum({at_big, at_one, nullptr}, other), 0x1p24);
  EXPECT_EQ(sum({at_one, nullptr, at_big}, other), 0x1p24 + 2);
}

// 1 + 2^-8 is 1 in bf16, and so is that + 2^-9.
TEST(SumRanks, RoundsToBf16Once) {
  CpuStream stream(1 << 20, 1);
  const auto number = [&](float x) { return make_tensor<bf16>({1}, std::vector{bf16(x)}, stream); };
  const Tensor own = number(1), second = number(0x1p-8f), third = number(0x1p-9f);
  launch(SumRanks{.slices = {{.out = own, .own = own}},
                  .pieces = {nullptr, second.view().data(), third.view().data()},
                  .sent = DType::bf16},
         stream);
  EXPECT_EQ(values(own)[0], 1 + 0x1p-7);
}

TEST(SumRanks, KeepsTheBitsOfOneRank) {
  CpuStream stream(1 << 20, 1);
  const std::vector<float> all{-0.0f, 0.0f, 0x1p-149f, -std::numeric_limits<float>::infinity()};
  const Tensor own = make_tensor<float>({4}, all, stream), out = unset({4}, DType::f32, stream);
  launch(SumRanks{.slices = {{.out = out, .own = own}}, .pieces = {nullptr}}, stream);
  EXPECT_EQ(bits_of(values(out)), bits_of(values(own)));
}

TEST(SumRanks, BitsDoNotDependOnTheNumberOfThreads) {
  expect_same_for_any_threads([](Stream& stream) {
    const Tensor own = normal({70003}, DType::bf16, stream, 1),
                 sent = normal({70003}, DType::f32, stream, 2),
                 out = normal({70003}, DType::f32, stream, 3);
    launch(SumRanks{.slices = {{.out = add_to(out), .own = own}},
                    .pieces = {sent.view().data(), nullptr}},
           stream);
    return values(out);
  });
}

TEST(SumRanks, CostsWhatItReadsAndWrites) {
  MetaStream stream{Machine{}};
  const Tensor own({{1000}, DType::bf16}, stream), out({{1000}, DType::f32}, stream),
      sent({{1000}, DType::f32}, stream);
  const void* piece = sent.view().data();
  const Cost stored =
                 SumRanks{.slices = {{.out = out, .own = own}}, .pieces = {piece, piece, nullptr}}
                     .cost(),
             added = SumRanks{.slices = {{.out = add_to(out), .own = own}},
                              .pieces = {piece, piece, nullptr}}
                         .cost();
  EXPECT_EQ(stored.flops, 2000);
  EXPECT_EQ(stored.bytes, 4000 + 2000 + 8000);
  EXPECT_EQ(added.flops, 3000);
  EXPECT_EQ(added.bytes, 8000 + 2000 + 8000);
}

TEST(SumRanks, CostsTheBytesOfWhatWasSent) {
  MetaStream stream{Machine{}};
  const Tensor own({{1000}, DType::bf16}, stream), wide({{1000}, DType::f32}, stream);
  const void* piece = own.view().data();
  const auto cost = [&](const Tensor& out) {
    return SumRanks{.slices = {{.out = out, .own = own}},
                    .pieces = {piece, piece, nullptr},
                    .sent = DType::bf16}
        .cost();
  };
  EXPECT_EQ(cost(own).bytes, 2000 + 2000 + 4000);
  EXPECT_EQ(cost(wide).bytes, 4000 + 2000 + 4000);
  EXPECT_EQ(cost(own).dtype, DType::f32);
}

TEST(SumRanks, RefusesTypesThatDoNotFit) {
  MetaStream stream{Machine{}};
  const Tensor wide({{8}, DType::f32}, stream), narrow({{8}, DType::bf16}, stream),
      sent({{8}, DType::f32}, stream);
  const auto refused = [&](const Tensor& out, const Tensor& own, std::optional<DType> type) {
    const SumRanks k{.slices = {{.out = out, .own = own}},
                     .pieces = {sent.view().data(), nullptr},
                     .sent = type};
    return error_of([&] { launch(k, stream); });
  };
  EXPECT_EQ(refused(narrow, narrow, DType::f32), "sum_ranks: out is bf16 (8), and f32 would fit");
  EXPECT_EQ(refused(wide, wide, DType::bf16),
            "sum_ranks: own is f32 (8), and bf16 (8) would fit the other arguments");
  EXPECT_EQ(refused(narrow, narrow, {}), "sum_ranks: out is bf16 (8), and f64 or f32 would fit");
  EXPECT_EQ(refused(wide, wide, DType::i32),
            "sum_ranks: elements of i32 cannot add up; f64, f32 and bf16 can");
}

TEST(SumRanks, RefusesWhatDoesNotFit) {
  MetaStream stream{Machine{}};
  const Tensor own({{8}, DType::f32}, stream), out({{8}, DType::f32}, stream),
      sent({{8}, DType::f32}, stream);
  SumRanks k{.slices = {{.out = out, .own = own}}, .pieces = {sent.view().data()}};
  const auto refused = [&] { return error_of([&] { launch(k, stream); }); };
  EXPECT_EQ(refused(), "sum_ranks: 0 of 1 ranks sent no piece; this rank alone must not");
  k.pieces = {nullptr, nullptr};
  EXPECT_EQ(refused(), "sum_ranks: 2 of 2 ranks sent no piece; this rank alone must not");
  k.pieces = {};
  EXPECT_EQ(refused(), "sum_ranks: 0 ranks cannot add up; 1 to 64 can");
  EXPECT_EQ(error_of([] { SumRanks::check_ranks(65); }),
            "sum_ranks: 65 ranks cannot add up; 1 to 64 can");
  k.pieces = {sent.view().data(), nullptr};
  launch(k, stream);
  k.slices = {{.out = out, .own = own, .at = -1}};
  EXPECT_TRUE(contains(refused(), "a slice begins at element -1"));
  k.slices = {{.out = sent, .own = own, .at = 7}};
  EXPECT_TRUE(contains(refused(), "overlaps the memory of what a rank sent"));
  k.slices = {{.out = out.slice({0, 7}), .own = out.slice({1, 8})}};
  EXPECT_TRUE(contains(refused(), "overlaps the memory of own"));
}

}  // namespace
}  // namespace spool::testing
