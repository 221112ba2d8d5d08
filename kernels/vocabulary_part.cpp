#include "spool/kernels/vocabulary_part.h"

#include <limits>

#include "spool/runtime/check.h"

namespace spool {

void VocabularyPart::check_fits(const char* kernel, const char* rows, int64_t size) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  check(whole >= 0 && whole <= most, kernel, ": the whole vocabulary has ", whole, ' ', rows,
        "; use 0 if there are no other parts, or the number of all parts together, at most ", most);
  check(first >= 0, kernel, ": the part begins at ", first, " of the ", rows,
        " of the whole vocabulary; it must be 0 or more");
  check(first <= whole_of(size) - size, kernel, ": the part has ", size, ' ', rows, " from ", first,
        " on, and the whole vocabulary has ", whole_of(size), "; they must lie in it");
}

}  // namespace spool
