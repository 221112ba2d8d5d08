// The cheapest moves between shardings, against the best of all paths and against a greedy walk.

#include "spool/autograd/sharding/conversions.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "tests/autograd/sharding/parts_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const std::vector<Shape> shapes{{8}, {16}, {8, 8}, {8, 16, 8}, {2, 4, 8}, {2, 8, 3}, {8, 1, 16}};
const std::vector<std::string> meshes{"2x2", "2x4"};

struct NamedLinks {
  const char* name;
  std::vector<Link> links;
};
const std::vector<NamedLinks> prices{
    {"bytes", {{.seconds = 0, .bytes_per_second = 1}, {.seconds = 0, .bytes_per_second = 1}}},
    {"latency",
     {{.seconds = 1, .bytes_per_second = 1e15}, {.seconds = 1, .bytes_per_second = 1e15}}},
    {"unequal", {{.seconds = 3, .bytes_per_second = 2}, {.seconds = 40, .bytes_per_second = 90}}}};

// Calls f(value, mesh, price, words) for each combination.
template <class F>
void for_each_case(const F& f) {
  for (const Shape& shape : shapes) {
    for (const std::string& text : meshes) {
      for (const NamedLinks& p : prices) {
        const MeshAxes mesh = parse_mesh(text);
        f(plain_value({shape}), mesh, link_price(mesh, p.links),
          sentence(shape, ' ', text, ' ', p.name));
      }
    }
  }
}

Sharding moved(Sharding s, const Move& m) {
  s[static_cast<size_t>(m.axis)] = m.to;
  return s;
}

// The moves of the table in conversions.h, of two axes, written down once more.
bool is_in_table(State from, State to) {
  const State whole = State::whole(), shared = State::shared(), partial = State::partial();
  if (from == whole) return to == shared || to == partial || to.is_cut();
  if (from == partial) return to == whole || to.is_cut();
  return from.is_cut() && (to == whole || to == shared || (to.is_cut() && to != from));
}

bool joins_rows(const WholeValue& v, const Sharding& s, const MeshAxes& mesh, int dimension) {
  return joined_rows(v, s, mesh).dimensions > dimension;
}

std::vector<Move> moves_from(const WholeValue& v, const Sharding& s, const MeshAxes& mesh) {
  std::vector<Move> all;
  for (const Sharding& to : all_shardings(v, mesh)) {
    for (int a = 0; a < 2; ++a) {
      const auto axis = static_cast<size_t>(a), other = 1 - axis;
      const Move m{.axis = a, .from = s[axis], .to = to[axis]};
      if (moved(s, m) != to || !is_in_table(m.from, m.to)) continue;
      if (a == 0 && s[1].is_cut() && (s[1] == m.from || s[1] == m.to)) continue;
      // Of dimensions that are one only those behind them are exchanged.
      if (m.from.is_cut() && m.to.is_cut()) {
        const int behind = std::max(m.from.dimension(), m.to.dimension());
        if (joins_rows(v, s, mesh, behind) || joins_rows(v, to, mesh, behind)) continue;
      }
      EXPECT_EQ(s[other], to[other]);
      all.push_back(m);
    }
  }
  return all;
}

// The least seconds of all paths of at most five moves.
std::map<Sharding, double> best_of_all_paths(
    const std::map<Sharding, std::vector<std::pair<Sharding, double>>>& next,
    const Sharding& from) {
  std::map<Sharding, double> best{{from, 0}};
  for (int moves = 0; moves < 5; ++moves) {
    std::map<Sharding, double> longer = best;
    for (const auto& [at, seconds] : best) {
      for (const auto& [to, price] : next.at(at)) {
        const auto [known, is_new] = longer.emplace(to, seconds + price);
        if (!is_new) known->second = std::min(known->second, seconds + price);
      }
    }
    best = longer;
  }
  return best;
}

TEST(ConversionsOfShardings, AreAsCheapAsTheBestOfAllPaths) {
  for_each_case([](const WholeValue& v, const MeshAxes& mesh, const MovePrice& price,
                   const std::string& words) {
    std::map<Sharding, std::vector<std::pair<Sharding, double>>> next;
    for (const Sharding& s : all_shardings(v, mesh)) {
      auto& all = next[s];
      for (const Move& m : moves_from(v, s, mesh)) all.emplace_back(moved(s, m), price(v, s, m));
    }
    for (const auto& [from, moves] : next) {
      const Conversions conversions(v, from, mesh, price);
      const auto best = best_of_all_paths(next, from);
      ASSERT_EQ(conversions.reachable().size(), best.size()) << words;
      for (const auto& [to, seconds] : best) {
        const double found = conversions.seconds(to).value();
        ASSERT_NEAR(found, seconds, 1e-9 * seconds)
            << words << ' ' << in_words(from, v.spec.shape.rank(), mesh) << " -> "
            << in_words(to, v.spec.shape.rank(), mesh);
      }
    }
  });
}

// Goes to a sharding axis by axis, by way of the whole: what is cut is gathered, the last axis
// first, and then cut anew, the first axis first.
std::optional<double> greedy(const WholeValue& v, const Sharding& from, const Sharding& to,
                             const MeshAxes& mesh, const MovePrice& price) {
  double seconds = 0;
  Sharding at = from;
  const auto step = [&](size_t axis, State state) {
    if (at[axis] == state) return true;
    const Move m{.axis = static_cast<int>(axis), .from = at[axis], .to = state};
    const bool is_possible = std::ranges::any_of(possible_moves(v, at, mesh), [&](const Move& p) {
      return p.axis == m.axis && p.to == m.to;
    });
    if (is_possible) seconds += price(v, at, m), at = moved(at, m);
    return is_possible;
  };
  bool is_reached = true;
  for (size_t a = mesh.size(); a-- > 0;) {
    if (from[a] != to[a]) is_reached = is_reached && step(a, State::whole());
  }
  for (size_t a = 0; a < mesh.size(); ++a) is_reached = is_reached && step(a, to[a]);
  if (!is_reached) return std::nullopt;
  return seconds;
}

TEST(ConversionsOfShardings, AreNeverDearerThanAGreedyWalk) {
  size_t walked = 0, cheaper = 0;
  for_each_case([&](const WholeValue& v, const MeshAxes& mesh, const MovePrice& price,
                    const std::string& words) {
    const auto all = all_shardings(v, mesh);
    for (const Sharding& from : all) {
      const Conversions conversions(v, from, mesh, price);
      for (const Sharding& to : all) {
        const auto seconds = greedy(v, from, to, mesh, price);
        if (!seconds) continue;
        ASSERT_TRUE(conversions.seconds(to)) << words;
        ASSERT_LE(*conversions.seconds(to), *seconds * (1 + 1e-9)) << words;
        ++walked;
        cheaper += *conversions.seconds(to) < *seconds * (1 - 1e-9);
      }
    }
  });
  EXPECT_GT(cheaper, walked / 10);
}

TEST(ConversionsOfShardings, ArePathsOfMovesFromOneToTheOther) {
  for_each_case([](const WholeValue& v, const MeshAxes& mesh, const MovePrice& price,
                   const std::string& words) {
    for (const Sharding& from : all_shardings(v, mesh)) {
      const Conversions conversions(v, from, mesh, price);
      for (const Sharding& to : conversions.reachable()) {
        Sharding at = from;
        double seconds = 0;
        for (const Move& m : conversions.moves(to)) {
          ASSERT_EQ(at[static_cast<size_t>(m.axis)], m.from) << words;
          seconds += price(v, at, m);
          at = moved(at, m);
        }
        ASSERT_EQ(at, to) << words;
        ASSERT_NEAR(seconds, *conversions.seconds(to), 1e-9 * seconds) << words;
      }
    }
  });
}

// All shardings are reached from those that are not shared.
TEST(ConversionsOfShardings, ReachWhatIsNotASummandOfWhatIsNotShared) {
  for (const Shape& shape : shapes) {
    const MeshAxes mesh = parse_mesh("2x4");
    const WholeValue v = plain_value({shape}), ids = plain_value({shape, DType::i32});
    const MovePrice price = link_price(mesh, prices[2].links);
    for (const Sharding& from : all_shardings(v, mesh)) {
      const bool is_shared = from[0] == State::shared() || from[1] == State::shared();
      const bool is_partial = from[0] == State::partial() || from[1] == State::partial();
      const auto reached = Conversions(v, from, mesh, price).reachable();
      if (!is_shared) {
        EXPECT_EQ(reached.size(), all_shardings(v, mesh).size()) << shape;
      }
      for (const Sharding& to : reached) {
        for (size_t a = 0; a < 2; ++a) {
          EXPECT_TRUE(from[a] != State::shared() || to[a] == State::shared());
        }
      }
      if (is_shared || is_partial) continue;
      for (const Sharding& to : Conversions(ids, from, mesh, price).reachable()) {
        for (size_t a = 0; a < 2; ++a) {
          EXPECT_TRUE(to[a] == State::whole() || to[a].is_cut());
        }
      }
    }
  }
}

// What a rank has after a move but an all-gather is of what it and the others along the axis had.
TEST(ConversionsOfShardings, AreMadeOfWhatTheRanksOfAnAxisHave) {
  for (const Shape& shape : shapes) {
    const MeshAxes mesh = parse_mesh("2x4");
    const WholeValue v = plain_value({shape});
    for (const Sharding& from : all_shardings(v, mesh)) {
      for (const Move& m : possible_moves(v, from, mesh)) {
        for (const Coordinates& rank : all_ranks(mesh)) {
          std::vector<int64_t> had;
          const auto axis = static_cast<size_t>(m.axis);
          for (Coordinates other = rank, i{0}; i[0] < mesh[axis]; ++i[0]) {
            other[axis] = i[0];
            const auto part = positions(v, from, mesh, other);
            had.insert(had.end(), part.begin(), part.end());
          }
          std::ranges::sort(had);
          auto has = positions(v, moved(from, m), mesh, rank);
          std::ranges::sort(has);
          ASSERT_TRUE(std::ranges::includes(had, has))
              << shape << ' ' << in_words(from, shape.rank(), mesh) << " -> "
              << in_words(moved(from, m), shape.rank(), mesh);
        }
      }
    }
  }
}

TEST(ConversionsOfShardings, DoNotExchangeRowsForADimensionThatTheyJoin) {
  const MeshAxes mesh = parse_mesh("4");
  const WholeValue v = plain_value({{2, 4, 8}});
  Sharding rows;
  rows[0] = State::cut(0);
  EXPECT_EQ(local_shape(v, rows, mesh), (Shape{2, 8}));
  std::vector<State> to;
  for (const Move& m : possible_moves(v, rows, mesh)) to.push_back(m.to);
  EXPECT_EQ(to, (std::vector{State::whole(), State::shared(), State::cut(2)}));
  Sharding middle;
  middle[0] = State::cut(1);
  to.clear();
  for (const Move& m : possible_moves(v, middle, mesh)) to.push_back(m.to);
  EXPECT_EQ(to, (std::vector{State::whole(), State::shared(), State::cut(2)}));
}

TEST(ConversionsOfShardings, DoWhatTheTableSays) {
  const auto words = [](State from, State to) {
    const Move m{.from = from, .to = to};
    return sentence(name(forward_of(m)), " / ", name(backward_of(m)));
  };
  const State W = State::whole(), H = State::shared(), P = State::partial(), C = State::cut(0);
  EXPECT_EQ(words(W, H), "nothing / all-reduce");
  EXPECT_EQ(words(W, P), "on-one-rank / nothing");
  EXPECT_EQ(words(W, C), "take / all-gather");
  EXPECT_EQ(words(P, W), "all-reduce / nothing");
  EXPECT_EQ(words(P, C), "reduce-scatter / all-gather");
  EXPECT_EQ(words(C, W), "all-gather / take");
  EXPECT_EQ(words(C, H), "all-gather / reduce-scatter");
  EXPECT_EQ(words(C, State::cut(1)), "all-to-all / all-to-all");
}

TEST(ConversionsOfShardings, CostMessagesAndBytes) {
  const MeshAxes mesh = parse_mesh("4x1");
  const WholeValue v = plain_value({{8, 4}});  // 128 bytes
  const MovePrice price = link_price(mesh, {{.seconds = 1000, .bytes_per_second = 1}, {}});
  Sharding whole, cut, partial;
  cut[0] = State::cut(0), partial[0] = State::partial();
  const auto seconds = [&](const Sharding& from, State to) {
    return price(v, from, {.axis = 0, .from = from[0], .to = to});
  };
  EXPECT_EQ(seconds(whole, State::shared()), 2000 + 2 * 96);  // an all-reduce
  EXPECT_EQ(seconds(whole, State::partial()), 0);
  EXPECT_EQ(seconds(whole, State::cut(0)), 1000 + 96);  // an all-gather of 32 bytes
  EXPECT_EQ(seconds(cut, State::shared()), 2 * (1000 + 96));
  EXPECT_EQ(seconds(cut, State::cut(1)), 2 * (1000 + 24));
  EXPECT_EQ(seconds(partial, State::cut(1)), 2 * (1000 + 96));
  EXPECT_EQ(price(v, whole, {.axis = 1, .from = whole[1], .to = State::cut(0)}), 0);
  const MovePrice forward = link_price(mesh, {{.seconds = 1000, .bytes_per_second = 1}, {}}, false);
  EXPECT_EQ(forward(v, whole, {.axis = 0, .from = whole[0], .to = State::cut(0)}), 0);
  EXPECT_EQ(forward(v, cut, {.axis = 0, .from = cut[0], .to = State::whole()}), 1000 + 96);
  expect_error(ErrorKind::invalid, {"a mesh of 2 axes has as many links, and not 1"},
               [&] { link_price(mesh, {Link{}}); });
}

TEST(ConversionsOfShardings, ThatThereAreNotAreRefused) {
  const MeshAxes mesh = parse_mesh("2");
  Sharding shared, whole;
  shared[0] = State::shared();
  const Conversions from_shared(plain_value({{4}}), shared, mesh, link_price(mesh, {Link{}}));
  EXPECT_FALSE(from_shared.seconds(whole));
  expect_error(ErrorKind::invalid, {"no moves lead"}, [&] { from_shared.moves(whole); });
}

}  // namespace
}  // namespace spool::testing
