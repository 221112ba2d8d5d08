#include "spool/runtime/cpu/processor.h"

// The build compiles this source with the options of all others, as its macros are what it is
// about.

namespace spool {
namespace {

// A macro that is defined as 1 has become that digit; another one is still its own name.
constexpr InstructionSets set_if(int bit, const char* text) {
  return text[0] == '1' ? InstructionSets{1} << bit : 0;
}

#define SPOOL_TEXT(x) #x
#define SPOOL_ADD(bit, name, macro) | set_if(bit, SPOOL_TEXT(macro))
constexpr InstructionSets compiled = 0 SPOOL_INSTRUCTION_SETS(SPOOL_ADD);

}  // namespace

extern constexpr BuiltFor built_for{.arch = SPOOL_ARCH, .sets = compiled};

}  // namespace spool
