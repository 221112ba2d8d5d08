#include "spool/autograd/sharding/conversions.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// An all-reduce is a reduce-scatter and an all-gather.
int messages_of(Collective e) {
  if (e == Collective::all_reduce) return 2;
  const bool is_local =
      e == Collective::nothing || e == Collective::on_one_rank || e == Collective::take;
  return is_local ? 0 : 1;
}

bool is_move(State from, State to, DType type) {
  if (from == to || from == State::shared()) return false;
  if (is_integer(type)) return !(to == State::shared() || to == State::partial());
  if (from == State::partial()) return to != State::shared();
  return !from.is_cut() || to != State::partial();
}

// Of axes that cut one dimension a later one leaves first and comes last.
bool is_in_order(const Sharding& s, size_t axis, State to, const MeshAxes& mesh) {
  for (size_t later = axis + 1; later < mesh.size(); ++later) {
    if (s[later].is_cut() && (s[later] == s[axis] || s[later] == to)) return false;
  }
  return true;
}

Sharding after(Sharding s, const Move& m) {
  s[static_cast<size_t>(m.axis)] = m.to;
  return s;
}

// Rows of dimensions that became one may be exchanged for a cut of those behind them alone.
bool divides(const WholeValue& value, const Sharding& from, const Move& m, const MeshAxes& mesh) {
  const bool is_exchanged = m.from.is_cut() && m.to.is_cut();
  const int rows = is_exchanged ? std::max(m.from.dimension(), m.to.dimension()) : Shape::max_rank;
  return local_shape(value, from, mesh, rows) && local_shape(value, after(from, m), mesh, rows);
}

}  // namespace

Collective forward_of(const Move& m) {
  if (m.from == State::whole()) {
    if (m.to == State::shared()) return Collective::nothing;
    return m.to == State::partial() ? Collective::on_one_rank : Collective::take;
  }
  if (m.from == State::partial()) {
    return m.to == State::whole() ? Collective::all_reduce : Collective::reduce_scatter;
  }
  return m.to.is_cut() ? Collective::all_to_all : Collective::all_gather;
}

Collective backward_of(const Move& m) {
  if (m.from == State::whole()) {
    if (m.to == State::partial()) return Collective::nothing;
    return m.to == State::shared() ? Collective::all_reduce : Collective::all_gather;
  }
  if (m.from == State::partial()) {
    return m.to == State::whole() ? Collective::nothing : Collective::all_gather;
  }
  if (m.to.is_cut()) return Collective::all_to_all;
  return m.to == State::shared() ? Collective::reduce_scatter : Collective::take;
}

double sent_bytes(Collective e, double bytes, int ranks) {
  const double others = ranks - 1;
  switch (e) {
    case Collective::all_gather:
      return bytes * others;
    case Collective::all_reduce:
      return 2 * bytes * others / ranks;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return bytes * others / ranks;
    default:
      return 0;
  }
}

MovePrice link_price(const MeshAxes& mesh, std::vector<Link> links, bool has_gradient) {
  check(links.size() == mesh.size(), "a mesh of ", mesh.size(), " axes has as many links, and not ",
        links.size());
  return [mesh, links = std::move(links), has_gradient](const WholeValue& value,
                                                        const Sharding& from, const Move& m) {
    const auto axis = static_cast<size_t>(m.axis);
    const auto seconds = [&](Collective e, const Sharding& has) {
      if (mesh[axis] == 1) return 0.0;
      const auto bytes = static_cast<double>(local_spec(value, has, mesh).nbytes());
      return messages_of(e) * links[axis].seconds +
             sent_bytes(e, bytes, mesh[axis]) / links[axis].bytes_per_second;
    };
    const double backward = has_gradient ? seconds(backward_of(m), after(from, m)) : 0;
    return seconds(forward_of(m), from) + backward;
  };
}

std::vector<Move> possible_moves(const WholeValue& value, const Sharding& from,
                                 const MeshAxes& mesh) {
  std::vector<State> states{State::whole(), State::shared(), State::partial()};
  for (int d = 0; d < value.spec.shape.rank(); ++d) states.push_back(State::cut(d));
  std::vector<Move> all;
  for (size_t a = 0; a < mesh.size(); ++a) {
    for (const State to : states) {
      const Move m{.axis = static_cast<int>(a), .from = from[a], .to = to};
      const bool is_possible =
          is_move(from[a], to, value.spec.dtype) && is_in_order(from, a, to, mesh);
      if (is_possible && divides(value, from, m, mesh)) all.push_back(m);
    }
  }
  return all;
}

Conversions::Conversions(const WholeValue& value, const Sharding& from, const MeshAxes& mesh,
                         const MovePrice& price)
    : from_(from), reached_{{from, {}}} {
  using Item = std::pair<double, Sharding>;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue;
  for (queue.emplace(0, from); !queue.empty();) {
    const auto [seconds, at] = queue.top();
    queue.pop();
    if (seconds > reached_.at(at).seconds) continue;
    for (const Move& m : possible_moves(value, at, mesh)) {
      const Sharding next = after(at, m);
      const double total = seconds + price(value, at, m);
      const auto [known, is_new] = reached_.try_emplace(next);
      if (!is_new && known->second.seconds <= total) continue;
      known->second = {.seconds = total, .before = at, .by = m};
      queue.emplace(total, next);
    }
  }
}

std::optional<double> Conversions::seconds(const Sharding& to) const {
  const auto at = reached_.find(to);
  if (at == reached_.end()) return std::nullopt;
  return at->second.seconds;
}

std::vector<Move> Conversions::moves(const Sharding& to) const {
  check(reached_.contains(to), "sharding: no moves lead from one sharding to the other");
  std::vector<Move> path;
  for (Sharding at = to; at != from_;) {
    const Reached& last = reached_.at(at);
    path.push_back(last.by);
    at = last.before;
  }
  std::ranges::reverse(path);
  return path;
}

std::vector<Sharding> Conversions::reachable() const {
  std::vector<Sharding> all;
  for (const auto& [sharding, reached] : reached_) all.push_back(sharding);
  return all;
}

}  // namespace spool
