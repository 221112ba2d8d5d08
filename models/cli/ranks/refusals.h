#pragma once

// Of the ranks that a launcher started one says why they do not begin: each of them may have the
// same to say, or one alone.

#include <string>

#include "spool/runtime/ranks/launcher.h"

namespace spool {

// On a rank that cannot begin: whether it is to say why.  Rank 0 says it, and stays a moment to
// hear the others, which then are silent; one that rank 0 does not hear says it itself.  `meet` is
// what --meet says.
bool is_to_say(const LaunchedRank&, const std::string& meet, const std::string& why);

// "rank 2: " and the words; rank 0's are as they are.
std::string words_of_rank(int rank, const std::string& words);

}  // namespace spool
