// runs: threads
// Moves between shardings as ops, on ranks that are threads: what each rank has after them, and its
// gradient.

#include "spool/autograd/sharding/move_op.h"

#include <algorithm>

#include "spool/autograd/tape.h"
#include "spool/kernels/elementwise.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/autograd/sharding/parts_testing.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{8} << 20;

// Integers, so that sums are exact in any order.
Numbers whole_numbers(const Shape& shape, int factor) {
  Numbers all;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    all.push_back(static_cast<double>(i * factor % 101 - 50));
  }
  return all;
}

// A rank's part, as others do not have it where it is a summand: the sum of all is the whole.
Numbers part_with_summands(const Numbers& whole, const WholeValue& v, const Sharding& s,
                           const MeshAxes& mesh, const Coordinates& rank) {
  Sharding place = s;
  int64_t number = 0, of = 1;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (s[a] != State::partial()) continue;
    place[a] = State::whole();
    number = number * mesh[a] + rank[a];
    of *= mesh[a];
  }
  Numbers part;
  for (const int64_t i : positions(v, place, mesh, rank)) {
    const auto other = [=](int64_t n) { return static_cast<double>((i + 3) * n % 13); };
    double number_of_first = whole[static_cast<size_t>(i)];
    for (int64_t n = 1; n < of; ++n) number_of_first -= other(n);
    part.push_back(number == 0 ? number_of_first : other(number));
  }
  return part;
}

struct Journey {
  WholeValue value;
  MeshAxes mesh;
  Sharding from, to;
  std::vector<Move> moves;

  std::string words() const {
    const int rank = value.spec.shape.rank();
    return sentence(value.spec, " on ", mesh.text(), ": ", in_words(from, rank, mesh), " to ",
                    in_words(to, rank, mesh));
  }
};

Tensor tensor_of(const Numbers& numbers, const Spec& spec, Stream& stream) {
  if (is_integer(spec.dtype)) {
    return integers(spec.shape, std::vector<int32_t>(numbers.begin(), numbers.end()), stream);
  }
  const Tensor all({spec.shape, DType::f64}, stream), t(spec, stream);
  write<double>(all, numbers);
  launch(Cast{.out = t, .in = all}, stream);
  return t;
}

Numbers numbers_of(const Tensor& t) {
  if (!is_integer(t.dtype())) return values(t);
  const std::vector<int32_t> all = read<int32_t>(t);
  return {all.begin(), all.end()};
}

struct Arrived {
  Numbers value = {}, gradient = {};
  size_t peak = 0;
};

// What a rank has at the end, and the gradient of what it had at the beginning.
Arrived travel(const Journey& j, const Coordinates& rank, Stream& stream) {
  const MeshRanks ranks(j.mesh, stream);
  const Shape& shape = j.value.spec.shape;
  const Numbers part = part_with_summands(whole_numbers(shape, 7), j.value, j.from, j.mesh, rank);
  const bool has_gradient = !is_integer(j.value.spec.dtype);
  Arrived arrived;
  {
    Tape tape(stream);
    const Var x = tape.input(tensor_of(part, local_spec(j.value, j.from, j.mesh), stream),
                             /*needs_grad=*/has_gradient);
    Var y = x;
    Sharding at = j.from;
    for (const Move& m : j.moves) {
      y = tape.apply(move_op(j.value, at, m, ranks), std::array{Operand(y)}).front();
      at[static_cast<size_t>(m.axis)] = m.to;
    }
    if (has_gradient) {
      const Numbers seed = part_with_summands(whole_numbers(shape, 11), j.value,
                                              gradient_of(j.to, j.mesh), j.mesh, rank);
      tape.backward({{.y = y, .dy = tensor_of(seed, y.spec(), stream)}});
    }
    if (stream.device().type != DeviceType::meta) {
      arrived.value = numbers_of(y.tensor());
      if (has_gradient) arrived.gradient = values(tape.grad(x));
    }
  }
  stream.synchronize();
  arrived.peak = stream.memory().peak;
  return arrived;
}

size_t foretold_peak(const Journey& j, const Coordinates& coordinates, int rank) {
  MetaStream meta(
      Machine{.architecture = this_processor(1), .mesh = {.ranks = j.mesh.ranks(), .rank = rank}});
  return travel(j, coordinates, meta).peak;
}

// Expects that the ranks have parts of the whole, and copies of it that are equal.
void expect_whole(const std::vector<Numbers>& parts, const Numbers& whole, const WholeValue& v,
                  const Sharding& s, const MeshAxes& mesh, const char* what) {
  EXPECT_EQ(whole_of(parts, v, s, mesh), whole) << what;
  const auto ranks = all_ranks(mesh);
  for (size_t r = 0; r < ranks.size(); ++r) {
    Coordinates first = ranks[r];
    for (size_t a = 0; a < mesh.size(); ++a) {
      if (s[a] == State::whole() || s[a] == State::shared()) first[a] = 0;
    }
    const auto at = static_cast<size_t>(std::ranges::find(ranks, first) - ranks.begin());
    EXPECT_EQ(parts[r], parts[at]) << what << " of rank " << r;
  }
}

void expect_arrivals(const std::vector<Journey>& journeys) {
  const MeshAxes& mesh = journeys.front().mesh;
  const auto all = all_ranks(mesh);
  std::vector<std::vector<Arrived>> arrived(journeys.size(), std::vector<Arrived>(all.size()));
  run_ranks(mesh.ranks(), [&](const std::shared_ptr<Communicator>& own) {
    const auto rank = static_cast<size_t>(own->rank());
    for (size_t i = 0; i < journeys.size(); ++i) {
      CpuStream stream(budget, 1);
      stream.join(own);
      arrived[i][rank] = travel(journeys[i], all[rank], stream);
    }
  });
  for (size_t i = 0; i < journeys.size(); ++i) {
    const Journey& j = journeys[i];
    SCOPED_TRACE(j.words());
    std::vector<Numbers> parts, gradients;
    for (size_t r = 0; r < all.size(); ++r) {
      EXPECT_EQ(arrived[i][r].peak, foretold_peak(j, all[r], static_cast<int>(r)));
      parts.push_back(arrived[i][r].value);
      gradients.push_back(arrived[i][r].gradient);
    }
    const Shape& shape = j.value.spec.shape;
    expect_whole(parts, whole_numbers(shape, 7), j.value, j.to, mesh, "the value");
    if (is_integer(j.value.spec.dtype)) continue;
    expect_whole(gradients, whole_numbers(shape, 11), j.value, gradient_of(j.from, mesh), mesh,
                 "the gradient");
    if (::testing::Test::HasFailure()) return;
  }
}

// Between every pair of shardings that moves connect: all by night, else some of them.
std::vector<Journey> journeys_of(const WholeValue& value, const MeshAxes& mesh) {
  const std::vector<Link> links(mesh.size(), Link{.seconds = 1e-6, .bytes_per_second = 1e9});
  const MovePrice price = link_price(mesh, links);
  const size_t step = nightly() ? 1 : finds_races() ? 61 : 11;
  std::vector<Journey> all;
  size_t next = 0;
  for (const Sharding& from : all_shardings(value, mesh)) {
    const bool has_summands =
        from != gradient_of(from, mesh) || std::ranges::count(from.along, State::partial()) > 0;
    if (is_integer(value.spec.dtype) && has_summands) continue;
    const Conversions conversions(value, from, mesh, price);
    for (const Sharding& to : conversions.reachable()) {
      if (to == from || next++ % step != 0) continue;
      all.push_back({value, mesh, from, to, conversions.moves(to)});
    }
  }
  return all;
}

WholeValue with_parts(const Shape& shape, int dimension, std::vector<int64_t> parts, int64_t units,
                      DType type) {
  WholeValue v = plain_value({shape, type});
  v.dimensions[static_cast<size_t>(dimension)] = {.parts = std::move(parts), .units = units};
  return v;
}

class MoveOps : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mesh, MoveOps, ::testing::Values("2", "1x2", "2x2", "2x4"),
                         [](const auto& mesh) { return "on_" + std::string(mesh.param); });

TEST_P(MoveOps, BringEachValueAndItsGradientToEverySharding) {
  const MeshAxes mesh = parse_mesh(GetParam());
  for (const Shape& shape : {Shape{16}, {8, 16}, {2, 4, 8}, {2, 8, 3}, {8, 1, 16}}) {
    expect_arrivals(journeys_of(plain_value({shape, DType::f64}), mesh));
  }
  expect_arrivals(journeys_of(plain_value({Shape{8, 8}, DType::i32}), mesh));
  expect_arrivals(journeys_of(plain_value({Shape{4, 2, 8}, DType::bf16}), mesh));
}

// As of a packed q, k, v with fewer key heads.
TEST_P(MoveOps, CutEachPartOfADimensionByItself) {
  const MeshAxes mesh = parse_mesh(GetParam());
  for (const DType type : {DType::f32, DType::bf16}) {
    expect_arrivals(journeys_of(with_parts({4, 2, 32}, 2, {16, 8, 8}, 8, type), mesh));
    expect_arrivals(journeys_of(with_parts({32, 3}, 0, {16, 8, 8}, 8, type), mesh));
    expect_arrivals(journeys_of(with_parts({2, 32, 4}, 1, {24, 8}, 8, type), mesh));
  }
}

// Of values that are large, and divide, a rank adds up a piece, and gathers the others' sums.
TEST_P(MoveOps, AddUpLargeValuesAndThoseThatDoNotDivide) {
  const MeshAxes mesh = parse_mesh(GetParam());
  const State whole = State::whole(), shared = State::shared(), partial = State::partial();
  std::vector<Journey> all;
  for (const Shape& shape : {Shape{96, 512}, {97, 509}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const auto& [from, to] : {std::pair{partial, whole}, {whole, shared}}) {
        Journey j{plain_value({shape, type}), mesh, {}, {}, {}};
        for (size_t a = 0; a < mesh.size(); ++a) {
          j.from[a] = from, j.to[a] = to;
          j.moves.push_back({.axis = static_cast<int>(a), .from = from, .to = to});
        }
        all.push_back(j);
      }
    }
  }
  expect_arrivals(all);
}

}  // namespace
}  // namespace spool::testing
