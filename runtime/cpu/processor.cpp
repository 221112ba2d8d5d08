#include "spool/runtime/cpu/processor.h"

#include <string>

#include "spool/runtime/check.h"

// The build compiles this source for any processor (CMakeLists.txt).

namespace spool {
namespace {

// The names of sets: "avx2, bmi2 and fma".
std::string names(InstructionSets sets) {
  std::string list, last;
  const auto add = [&](int bit, const char* name) {
    if (!(sets >> bit & 1)) return;
    if (!last.empty()) list += (list.empty() ? "" : ", ") + last;
    last = name;
  };
#define SPOOL_NAME(bit, name, macro) add(bit, name);
  SPOOL_INSTRUCTION_SETS(SPOOL_NAME)
  (void)add;
  return list.empty() ? last : list + " and " + last;
}

// The level of x86-64, in compilers' words, that the processor has at least.
const char* level(InstructionSets supported) {
  for (const char* name : {"avx2", "fma", "bmi", "bmi2"}) {
    if (!(supported & instruction_set(name))) return "x86-64";
  }
  return "x86-64-v3";
}

}  // namespace

InstructionSets instruction_set(std::string_view wanted) {
#define SPOOL_FIND(bit, name, macro) \
  if (wanted == (name)) return InstructionSets{1} << (bit);
  SPOOL_INSTRUCTION_SETS(SPOOL_FIND)
  throw Error(ErrorKind::invalid, "there is no instruction set " + std::string(wanted));
}

InstructionSets processor_instruction_sets() {
  InstructionSets sets = 0;
#define SPOOL_ASK(bit, name, macro) \
  if (__builtin_cpu_supports(name)) sets |= InstructionSets{1} << (bit);
  SPOOL_INSTRUCTION_SETS(SPOOL_ASK)
  return sets;
}

void check_processor(const BuiltFor& built, InstructionSets supported) {
  const InstructionSets missing = built.sets & ~supported;
  if (!missing) [[likely]]
    return;
  throw Error(ErrorKind::device,
              "this processor lacks instructions that Spool was built to use: " + names(missing) +
                  "; it was built with SPOOL_ARCH=" + built.arch +
                  ", and has to be built with SPOOL_ARCH=" + level(supported) +
                  ", or with SPOOL_ARCH=native on a machine with this processor");
}

}  // namespace spool
