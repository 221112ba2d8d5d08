#pragma once

// Whether this processor has the instructions that the library was compiled to use.  The build's
// option SPOOL_ARCH says for which processor that is; on one that lacks some of them the program
// would end by SIGILL, so every stream checks before it does anything else, and so does the
// command.
//
// The check itself is compiled for any processor, and what it compares with is data.

#include <string_view>

#include "spool/runtime/cpu/instruction_sets.h"

namespace spool {

struct BuiltFor {
  const char* arch;      // what the compiler was told, such as "native"
  InstructionSets sets;  // which it may therefore use
};
extern const BuiltFor built_for;

// The set with this name, such as "avx2"; throws if there is none.
InstructionSets instruction_set(std::string_view name);
// Those of the processor that runs this.
InstructionSets processor_instruction_sets();

// Throws a device error if some that the library was built for are not supported.
void check_processor(const BuiltFor& built, InstructionSets supported);
inline void check_processor() { check_processor(built_for, processor_instruction_sets()); }

}  // namespace spool
