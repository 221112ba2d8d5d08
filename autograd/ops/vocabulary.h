#pragma once

// The rows of a weight for each token, v, of which a part of an op has some.

#include "spool/autograd/notation/part_of_op.h"
#include "spool/kernels/vocabulary_part.h"

namespace spool {

// Null: it has all.
inline const PartOfIndex* part_of_vocabulary(const Place* place) {
  return place ? place->part('v') : nullptr;
}

inline VocabularyPart own_vocabulary(const Place* place) {
  const PartOfIndex* const part = part_of_vocabulary(place);
  return part ? VocabularyPart{.first = part->range.begin, .whole = part->extent}
              : VocabularyPart{};
}

}  // namespace spool
