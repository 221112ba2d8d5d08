// Names of tensors and parameters outlive the text that they were made from.

#include "spool/runtime/memory/label.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

static_assert(std::is_trivially_copyable_v<Name> && sizeof(Name) == sizeof(const char*));
static_assert(Label{.name = "x"}.name == "x" && Label{}.name == "tensor");

TEST(Name, OutlivesItsText) {
  std::string text = "h." + std::to_string(11) + ".mlp.c_proj.weight";
  const Name from_string = text, from_view = std::string_view(text).substr(0, 4);
  text.assign(text.size(), '?');
  EXPECT_EQ(from_string, "h.11.mlp.c_proj.weight");
  EXPECT_EQ(from_view, "h.11");
}

TEST(Name, ComparesItsText) {
  const std::string text = "weight";
  const Name literal = "weight", interned = text, again = intern("weight");
  EXPECT_EQ(literal, interned);
  EXPECT_EQ(interned.c_str(), again.c_str());
  EXPECT_EQ(literal, text);
  EXPECT_EQ(text, literal);
  EXPECT_NE(literal, Name("bias"));
  EXPECT_EQ(Name::never_freed(text.c_str()), literal);
}

TEST(Name, IsPrintedInErrors) {
  EXPECT_EQ(sentence("parameter ", Name("wte")), "parameter wte");
  EXPECT_EQ(std::string_view(Name("wte")), "wte");
}

}  // namespace
}  // namespace spool::testing
