#include "spool/autograd/sharding/joined_exchange.h"

namespace spool {

JoinedExchange::JoinedExchange(const Strategy& s, const MeshRanks& ranks, const std::string& op)
    : axes_(s.axes), ranks_(ranks) {
  for (size_t a = 0; a < ranks.mesh().size(); ++a) {
    names_.emplace_back(sentence("all-gather along ", ranks.along(a).axis(), ", in ", op));
  }
}

// Along the innermost axis first: what its ranks then have is one piece of the next one out.
void JoinedExchange::all_gather(char index, const View& own, const View& all, Stream& stream) {
  View has = own;
  int64_t outer = 1, number = 0;  // parts of the axes further out, and which of them is this rank's
  const MeshAxes& mesh = ranks_.mesh();
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (axes_[a].index == index) outer *= mesh[a];
  }
  check(all.numel() == outer * own.numel(), "all_gather: ", outer, " parts of ", own.spec(),
        " do not make up ", all.spec());
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (axes_[a].index == index) number = number * mesh[a] + ranks_.coordinate(a);
  }
  for (size_t a = mesh.size(); a-- > 0;) {
    if (axes_[a].index != index) continue;
    outer /= mesh[a];
    number /= mesh[a];
    const int64_t each = all.numel() / outer;
    const View joined = all.slice_elements({number * each, (number + 1) * each});
    ranks_.along(a).all_gather(joined, has, stream, names_[a].c_str());
    has = joined;
  }
}

}  // namespace spool
