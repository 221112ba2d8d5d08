// Compiles, unless TEXT_MAY_DIE: a name whose text may be gone before it is read.

#include "spool/runtime/memory/label.h"

spool::Label of_literal() { return {.name = "weight"}; }
spool::Label of_string(const std::string& text) { return {.name = text}; }
#if TEXT_MAY_DIE
spool::Label of_pointer(const char* text) { return {.name = text}; }
#endif
