#include "spool/autograd/ops.h"
#include "tests/autograd/samples/samples.h"

namespace spool::testing {
namespace {

struct Extents {
  Shape batch;
  int64_t M, N, K;
  bool shared = false;  // the second factor is one matrix
};

Shape matrices(const Shape& batch, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  if (batch.rank() == 0) return {rows, columns};
  if (batch.rank() == 1) return {batch[0], rows, columns};
  return {batch[0], batch[1], rows, columns};
}

Shape first(const Extents& e, Transposed t) { return matrices(e.batch, e.M, e.K, t.a); }
Shape second(const Extents& e, Transposed t) {
  return matrices(e.shared ? Shape() : e.batch, e.K, e.N, t.b);
}

OpSample sample(const std::string& name, const Extents& e, Transposed t) {
  return {
      .name = name + (t.a ? "_transposed_a" : "") + (t.b ? "_transposed_b" : ""),
      .inputs = {{.shape = first(e, t)}, {.shape = second(e, t), .parameter = e.shared}},
      .apply = [=](const std::vector<Operand>& x) { return std::vector{matmul(x[0], x[1], t)}; }};
}

// The same with a second check of threads, at larger extents.
OpSample sample(const std::string& name, const Extents& e, Transposed t, const Extents& large) {
  OpSample made = sample(name, e, t);
  made.inputs[0].large = first(large, t);
  made.inputs[1].large = second(large, t);
  return made;
}

}  // namespace

void add_matmul_samples(std::vector<OpSample>& all) {
  const Extents two{{}, 3, 4, 5}, batch{{3}, 4, 2, 5}, shared{{3}, 4, 2, 5, true};
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      // With both transposed no index leads every term that has it; see matmul_test.cpp.
      if (!a || !b) all.push_back(sample("matmul", two, {a, b}));
      all.push_back(sample("matmul_batched", batch, {a, b}, {{5}, 150, 70, 80}));
      all.push_back(sample("matmul_shared", shared, {a, b}, {{5}, 150, 70, 80, true}));
    }
  }
  all.push_back(sample("matmul_of_four_dimensions", {{2, 3}, 4, 2, 5}, {}, {{50, 8}, 9, 16, 12}));
  all.push_back(sample("matmul_of_four_dimensions_shared", {{2, 3}, 4, 2, 5, true}, {true, false}));
  all.push_back(
      {.name = "matmul_of_a_parameter",
       .inputs = {{.shape = {4, 3}, .parameter = true}, {.shape = {3, 5}}},
       .apply = [](const std::vector<Operand>& x) { return std::vector{matmul(x[0], x[1])}; }});
}

}  // namespace spool::testing
