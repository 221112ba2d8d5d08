// The parser of the index notation.

#include "spool/autograd/notation/notation.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Texts = std::vector<std::string>;
using Lengths = std::vector<int64_t>;

Texts texts(const std::vector<Term>& terms) {
  Texts all;
  for (const Term& term : terms) all.push_back(term.text());
  return all;
}

Lengths parts(const Term& term, char index) {
  const std::span<const int64_t> all = term.parts(index);
  return {all.begin(), all.end()};
}

TEST(IndexNotation, IsTakenApartIntoTerms) {
  const Notation linear = parse_notation("nk,ok,+o->no");
  EXPECT_EQ(texts(linear.inputs), (Texts{"nk", "ok", "+o"}));
  EXPECT_EQ(texts(linear.outputs), Texts{"no"});
  EXPECT_TRUE(linear.input(2).is_added);
  EXPECT_FALSE(linear.input(1).is_added);
  EXPECT_EQ(linear.separable(), "nko");
  const Notation loss = parse_notation("nC,v*C,n->,nC");
  EXPECT_EQ(texts(loss.inputs), (Texts{"nC", "vC", "n"}));
  EXPECT_EQ(texts(loss.outputs), (Texts{"", "nC"}));
  EXPECT_TRUE(loss.is_joined('v'));
  EXPECT_FALSE(loss.is_joined('n'));
  EXPECT_EQ(loss.input(9).indices, "") << "it is not mentioned";
  EXPECT_EQ(texts(parse_notation("bTP->bTQ,bHT").outputs), (Texts{"bTQ", "bHT"}));
  EXPECT_TRUE(is_separable('n'));
  EXPECT_FALSE(is_separable('C'));
}

TEST(IndexNotation, GivesADimensionParts) {
  const Notation attention = parse_notation("bT(128h+64h+64h),bT->bT(128h),b(2h)T");
  const Term& qkv = attention.input(0);
  EXPECT_EQ(qkv.indices, "bTh");
  EXPECT_EQ(qkv.text(), "bT(128h+64h+64h)");
  EXPECT_EQ(parts(qkv, 'h'), (Lengths{128, 64, 64}));
  EXPECT_EQ(qkv.units('h'), 256);
  EXPECT_EQ(parts(qkv, 'b'), Lengths{1});
  EXPECT_TRUE(qkv.is_plain('b'));
  EXPECT_FALSE(qkv.is_plain('h'));
  EXPECT_EQ(qkv.extent('h', {2, 9, 768}), 3);
  EXPECT_EQ(attention.output(1).text(), "b(2h)T");
  EXPECT_EQ(parts(parse_notation("n(i+i)->ni").input(0), 'i'), (Lengths{1, 1}));
  EXPECT_TRUE(parse_notation("n(1i)->ni").input(0).is_plain('i'));
  expect_error(ErrorKind::invalid, {"parts of 256 units", "(2, 9, 700)"}, [&] {
    (void)qkv.extent('h', {2, 9, 700});
  });
}

TEST(IndexNotation, ItsFirstIndexStandsForAllDimensionsThatOthersLeave) {
  const Notation linear = parse_notation("nk,ok,+o->no");
  const Term& x = linear.input(0);
  EXPECT_EQ(x.dimensions('n', 3).first, 0);
  EXPECT_EQ(x.dimensions('n', 3).count, 2);
  EXPECT_EQ(x.dimensions('k', 3).first, 2);
  EXPECT_EQ(x.dimensions('k', 3).count, 1);
  EXPECT_EQ(x.dimensions('n', 1).count, 0) << "x may be a row";
  EXPECT_EQ(x.dimensions('o', 3).count, 0) << "x lacks it";
  EXPECT_EQ(x.extent('n', {4, 5, 6}), 20);
  EXPECT_EQ(x.extent('n', {6}), 1);
  expect_error(ErrorKind::invalid, {"the indices 'ok' are too many for 0 dimensions"},
               [&] { (void)linear.input(1).dimensions('o', 0); });
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
  expect_refused("n(h+h)h->n", "h stands twice");
  expect_refused("nk->no", "o is a separable index of an output");
  expect_refused("n(i+j)->ni", "the parts of a dimension have the indices i and j, and have one");
  expect_refused("n(i+)->ni", "')' is not the index of a part");
  expect_refused("n()->n", "')' is not the index of a part");
  expect_refused("n(2)->n", "')' is not the index of a part");
  expect_refused("n(0i)->ni", "a part of no units");
  expect_refused("n(99999999999999999999i)->ni", "a part of more than");
  const std::string sum = "n(576460752303423488i+1i)->ni";
  expect_refused(sum, "units together");
  expect_refused("n(i->ni", "a parenthesis is not closed");
  expect_refused("ni)->ni", "')' is not a letter");
  expect_refused("n+o->n", "'+' is not a letter");
  expect_refused("no->+no", "+ marks what is added to a sum, an input");
  expect_refused("nV*->n", "V, a capital letter, is not cut");
  expect_refused("nv*->nv", "v is joined, so no output has it");
  expect_refused("*n->n", "'*' is not a letter");
}

}  // namespace
}  // namespace spool::testing
