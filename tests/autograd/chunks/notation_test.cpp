// The parser of the index notation.

#include "spool/autograd/notation/notation.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Terms = std::vector<std::string>;

TEST(IndexNotation, IsTakenApartIntoTerms) {
  const Notation linear = parse_notation("nk,ok,o->no");
  EXPECT_EQ(linear.inputs, (Terms{"nk", "ok", "o"}));
  EXPECT_EQ(linear.outputs, Terms{"no"});
  const Notation loss = parse_notation("nC,VC,n->,nC");
  EXPECT_EQ(loss.inputs, (Terms{"nC", "VC", "n"}));
  EXPECT_EQ(loss.outputs, (Terms{"", "nC"}));
  EXPECT_EQ(parse_notation("bTP->bTQ,bHT").outputs, (Terms{"bTQ", "bHT"}));
  EXPECT_TRUE(is_separable('n'));
  EXPECT_FALSE(is_separable('C'));
}

TEST(IndexNotation, RefusesWhatIsNone) {
  const auto expect_refused = [](std::string_view text, std::string_view words) {
    expect_error(ErrorKind::invalid, {text, words}, [&] { parse_notation(text); });
  };
  expect_refused("nk,ok", "no arrow");
  expect_refused("", "no arrow");
  expect_refused("nk, ok->no", "' ' is not a letter");
  expect_refused("nk->n->k", "'-' is not a letter");
  expect_refused("n1->n", "'1' is not a letter");
  expect_refused("nn->n", "n stands twice");
  expect_refused("nk->no", "o is a separable index of an output");
}

}  // namespace
}  // namespace spool::testing
