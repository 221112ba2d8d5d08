#pragma once

// From one sharding of a value to another.  A conversion is a path of moves, each along one axis;
// apart from what an op joins (*), moves are all that ranks exchange.
//
//   from -> to            forward          backward
//   whole   -> shared     nothing          all-reduce
//   whole   -> partial    on one rank      nothing
//   whole   -> cut        take             all-gather
//   partial -> whole      all-reduce       nothing
//   partial -> cut        reduce-scatter   all-gather
//   cut     -> whole      all-gather       take
//   cut     -> shared     all-gather       reduce-scatter
//   cut     -> cut        all-to-all       all-to-all
//
// Of axes that cut one dimension a later one leaves first and comes last.  Shared leads nowhere.
// Integers are whole or cut.

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "spool/autograd/sharding/sharding.h"
#include "spool/runtime/names.h"
#include "spool/runtime/ranks/mesh.h"

namespace spool {

struct Move {
  int axis = 0;
  State from = {}, to = {};
};

// What a move does, forward or backward.
enum class Collective : uint8_t {
  nothing,
  on_one_rank,
  take,
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all
};
template <>
inline constexpr std::array enumerator_names<Collective>{
    "nothing", "on-one-rank", "take", "all-gather", "reduce-scatter", "all-reduce", "all-to-all"};
Collective forward_of(const Move&);
Collective backward_of(const Move&);
// Bytes that a rank sends, of `bytes` that it has before.
double sent_bytes(Collective, double bytes, int ranks);

// Seconds of a move of a value that has this sharding, forward and backward.
using MovePrice = std::function<double(const WholeValue&, const Sharding& from, const Move&)>;
// By the links alone, one for each axis; of a value without a gradient only forward.
MovePrice link_price(const MeshAxes&, std::vector<Link>, bool has_gradient = true);

// The cheapest paths of a value from one sharding to all others, by Dijkstra's algorithm.
// [Dijkstra, "A note on two problems in connexion with graphs", 1959]
class Conversions {
 public:
  Conversions(const WholeValue&, const Sharding& from, const MeshAxes&, const MovePrice&);
  // Seconds of the cheapest path; none: there is no path.
  std::optional<double> seconds(const Sharding& to) const;
  // Its moves.  Throws if there is no path.
  std::vector<Move> moves(const Sharding& to) const;
  std::vector<Sharding> reachable() const;

 private:
  struct Reached {
    double seconds = 0;
    Sharding before = {};
    Move by = {};
  };
  Sharding from_;
  std::map<Sharding, Reached> reached_;
};

// The moves that lead on from a sharding, those that divide.
std::vector<Move> possible_moves(const WholeValue&, const Sharding& from, const MeshAxes&);

}  // namespace spool
