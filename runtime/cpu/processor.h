#pragma once

// Checks that this processor has the instructions that the library was compiled to use (the build's
// option SPOOL_ARCH).  Without them the program would end by SIGILL, so every stream, and the
// program `spool`, checks before it does anything else.
//
// The check itself is compiled for any processor; built_for, which it compares with, is data.

#include <string_view>

#include "spool/runtime/cpu/instruction_sets.h"

namespace spool {

struct BuiltFor {
  const char* arch;      // what the compiler was told, such as "native"
  InstructionSets sets;  // the extensions it may use
};
extern const BuiltFor built_for;

// The set with this name, such as "avx2"; throws if there is none.
InstructionSets instruction_set(std::string_view name);
// The sets of the processor that runs this program.
InstructionSets processor_instruction_sets();

// Throws a device error if a set that the library was built for is not supported.
void check_processor(const BuiltFor& built, InstructionSets supported);
inline void check_processor() { check_processor(built_for, processor_instruction_sets()); }

}  // namespace spool
