#include "tests/autograd/sharding/parts_testing.h"

#include <algorithm>

namespace spool::testing {
namespace {

// Which of the parts of a dimension a rank has: the earlier axis is the outer.
int64_t number_of(const Sharding& s, int dimension, const MeshAxes& mesh, const Coordinates& rank) {
  int64_t number = 0;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (s[a].cuts(dimension)) number = number * mesh[a] + rank[a];
  }
  return number;
}

// The elements of a dimension that a rank has.
std::vector<int64_t> elements(const DimensionParts& dimension, int64_t number, int64_t of) {
  std::vector<int64_t> all;
  int64_t first = 0;
  for (const int64_t part : dimension.parts) {
    for (int64_t i = 0; i < part / of; ++i) all.push_back(first + number * (part / of) + i);
    first += part;
  }
  return all;
}

}  // namespace

std::vector<Coordinates> all_ranks(const MeshAxes& mesh) {
  std::vector<Coordinates> all;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    Coordinates c(mesh.size());
    for (int rest = rank, a = static_cast<int>(mesh.size()); a-- > 0;) {
      c[static_cast<size_t>(a)] = rest % mesh[static_cast<size_t>(a)];
      rest /= mesh[static_cast<size_t>(a)];
    }
    all.push_back(c);
  }
  return all;
}

std::vector<int64_t> positions(const WholeValue& value, const Sharding& s, const MeshAxes& mesh,
                               const Coordinates& rank, int rows) {
  const Shape& shape = value.spec.shape;
  const JoinedRows joined = joined_rows(value, s, mesh, rows);
  std::vector<int64_t> all{0};
  for (int d = 0; d < shape.rank(); ++d) {
    DimensionParts dimension = value.dimensions[static_cast<size_t>(d)];
    if (d == 0 && joined.dimensions > 1) {
      dimension = {.parts = {joined.extent}};
      d = joined.dimensions - 1;
    }
    const int cut = d < joined.dimensions ? 0 : d;
    int64_t extent = 0;
    for (const int64_t part : dimension.parts) extent += part;
    std::vector<int64_t> next;
    for (const int64_t outer : all) {
      for (const int64_t i :
           elements(dimension, number_of(s, cut, mesh, rank), ways(s, cut, mesh))) {
        next.push_back(outer * extent + i);
      }
    }
    all = next;
  }
  return all;
}

std::vector<double> part_of(const std::vector<double>& whole, const WholeValue& value,
                            const Sharding& s, const MeshAxes& mesh, const Coordinates& rank) {
  bool has_numbers = true;
  for (size_t a = 0; a < mesh.size(); ++a) {
    has_numbers = has_numbers && (s[a] != State::partial() || rank[a] == 0);
  }
  std::vector<double> part;
  for (const int64_t i : positions(value, s, mesh, rank)) {
    part.push_back(has_numbers ? whole[static_cast<size_t>(i)] : 0);
  }
  return part;
}

std::vector<double> whole_of(const std::vector<std::vector<double>>& parts, const WholeValue& value,
                             const Sharding& s, const MeshAxes& mesh) {
  std::vector<double> whole(static_cast<size_t>(value.spec.shape.numel()), 0);
  const auto ranks = all_ranks(mesh);
  for (size_t r = 0; r < ranks.size(); ++r) {
    bool is_counted = true;
    for (size_t a = 0; a < mesh.size(); ++a) {
      const bool is_copied = s[a] == State::whole() || s[a] == State::shared();
      is_counted = is_counted && (!is_copied || ranks[r][a] == 0);
    }
    if (!is_counted) continue;
    const auto at = positions(value, s, mesh, ranks[r]);
    for (size_t i = 0; i < at.size(); ++i) whole[static_cast<size_t>(at[i])] += parts[r][i];
  }
  return whole;
}

Sharding gradient_of(Sharding s, const MeshAxes& mesh) {
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (s[a] == State::shared()) {
      s[a] = State::partial();
    } else if (s[a] == State::partial()) {
      s[a] = State::whole();
    }
  }
  return s;
}

std::vector<Sharding> all_shardings(const WholeValue& value, const MeshAxes& mesh) {
  std::vector<State> states{State::whole(), State::shared(), State::partial()};
  for (int d = 0; d < value.spec.shape.rank(); ++d) states.push_back(State::cut(d));
  std::vector<Sharding> all{{}};
  for (size_t a = 0; a < mesh.size(); ++a) {
    std::vector<Sharding> next;
    for (Sharding s : all) {
      for (const State state : states) {
        s[a] = state;
        next.push_back(s);
      }
    }
    all = next;
  }
  std::erase_if(all, [&](const Sharding& s) { return !local_shape(value, s, mesh); });
  return all;
}

}  // namespace spool::testing
