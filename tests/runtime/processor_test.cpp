// The check that a processor has the instructions that the library was compiled to use.

#include "spool/runtime/cpu/processor.h"

#include "tests/runtime/testing.h"

#if defined(__x86_64__)

namespace spool::testing {
namespace {

InstructionSets sets_of(std::initializer_list<const char*> names) {
  InstructionSets sets = 0;
  for (const char* name : names) sets |= instruction_set(name);
  return sets;
}

// The error for a processor with only these sets; empty if it is accepted.
std::string refusal(const BuiltFor& built, InstructionSets supported) {
  return error_of([&] { check_processor(built, supported); });
}

TEST(Processor, MayHaveMoreThanTheLibraryUses) {
  const InstructionSets used = sets_of({"avx2", "fma"});
  EXPECT_EQ(refusal({"x86-64-v3", used}, used), "");
  EXPECT_EQ(refusal({"x86-64-v3", used}, used | instruction_set("avx512f")), "");
  EXPECT_EQ(refusal({"", 0}, 0), "");
}

TEST(Processor, IsRefusedIfItLacksWhatTheLibraryUses) {
  const InstructionSets supported = sets_of({"sse4.2", "avx", "avx2", "fma", "bmi", "bmi2"});
  const InstructionSets used = supported | sets_of({"avx512f", "avx512vl", "avx512bf16"});
  EXPECT_EQ(refusal({"native", used}, supported),
            "this processor lacks instructions that Spool was built to use: avx512f, avx512vl and "
            "avx512bf16; it was built with SPOOL_ARCH=native, and has to be built with "
            "SPOOL_ARCH=x86-64-v3, or with SPOOL_ARCH=native on a machine with this processor");
}

TEST(Processor, IsToldTheLevelThatItSupports) {
  const std::string sentence =
      refusal({"x86-64-v3", sets_of({"avx", "avx2"})}, sets_of({"sse4.2", "avx"}));
  EXPECT_TRUE(contains(sentence,
                       "to use: avx2; it was built with SPOOL_ARCH=x86-64-v3, and has "
                       "to be built with SPOOL_ARCH=x86-64, or"))
      << sentence;
}

TEST(Processor, RunsWhatWasBuiltHere) {
  EXPECT_NO_THROW(check_processor());
  EXPECT_EQ(built_for.sets & ~processor_instruction_sets(), 0u);
}

// Tests are compiled for the same processor as the library.
TEST(Processor, HasTheSetsTheBuildMayUse) {
#if __AVX2__
  constexpr bool may_use_avx2 = true;
#else
  constexpr bool may_use_avx2 = false;
#endif
  EXPECT_EQ((built_for.sets & instruction_set("avx2")) != 0, may_use_avx2);
  EXPECT_NE(built_for.arch, nullptr);
}

}  // namespace
}  // namespace spool::testing

#endif
