// The only source that is compiled with the folder's path, so that ccache finds the others compiled
// whichever folder they are in.

#include "tests/runtime/source_folder.h"

namespace spool::testing {

std::filesystem::path source_folder() { return SPOOL_SOURCE_DIR; }

}  // namespace spool::testing
