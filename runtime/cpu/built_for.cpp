#include "spool/runtime/cpu/processor.h"

// Records the instruction sets of the build: compiled with the options of all other sources, whose
// macros it reads.

namespace spool {
namespace {

// `text` is "1" if the macro is defined as 1, else the macro's own name.
constexpr InstructionSets set_if(int bit, const char* text) {
  return text[0] == '1' ? InstructionSets{1} << bit : 0;
}

#define SPOOL_TEXT(x) #x
#define SPOOL_ADD(bit, name, macro) | set_if(bit, SPOOL_TEXT(macro))
constexpr InstructionSets compiled = 0 SPOOL_INSTRUCTION_SETS(SPOOL_ADD);

}  // namespace

extern constexpr BuiltFor built_for{.arch = SPOOL_ARCH, .sets = compiled};

}  // namespace spool
