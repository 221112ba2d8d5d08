// A product of matrices, and an exchange of rows, by the last lane of the warp to arrive.

#include "tensor_cores.h"

#include "arithmetic.h"
#include "scheduler.h"

namespace emulator {
namespace {

constexpr int rows = 16, columns = 8, terms = 16;

float low(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float high(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

struct Product {
  float a[rows][terms], b[terms][columns], c[rows][columns];

  void gather(int lane, const ProductPart& part) {
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int i = 0; i < 4; ++i) {
      const int r = row + i % 2 * 8, k = pair + i / 2 * 8;
      a[r][k] = low(part.a[i]);
      a[r][k + 1] = high(part.a[i]);
      c[row + i / 2 * 8][pair + i % 2] = part.c[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[pair + 8 * i][row] = low(part.b[i]);
      b[pair + 8 * i + 1][row] = high(part.b[i]);
    }
  }
  void multiply() {
    for (int r = 0; r < rows; ++r) {
      for (int k = 0; k < terms; ++k) {
        for (int n = 0; n < columns; ++n) c[r][n] += a[r][k] * b[k][n];
      }
    }
  }
  void scatter(int lane, ProductPart& part) const {
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int i = 0; i < 4; ++i) part.c[i] = c[row + i / 2 * 8][pair + i % 2];
  }
};

}  // namespace

void multiply_matrices(ProductPart* const (&lanes)[warpSize]) {
  Product product;
  for (int lane = 0; lane < warpSize; ++lane) product.gather(lane, *lanes[lane]);
  product.multiply();
  for (int lane = 0; lane < warpSize; ++lane) product.scatter(lane, *lanes[lane]);
}

// Lanes 8 m to 8 m + 7 hold the rows of matrix m.
void exchange_rows(MatrixRow* const (&lanes)[warpSize], bool transposed) {
  for (int lane = 0; lane < warpSize; ++lane) {
    const int row = lane / 4, pair = 2 * (lane % 4);
    for (int m = 0; m < 4; ++m) {
      const MatrixRow* const* matrix = lanes + 8 * m;
      const uint32_t first = transposed ? matrix[pair]->row[row] : matrix[row]->row[pair];
      const uint32_t second = transposed ? matrix[pair + 1]->row[row] : matrix[row]->row[pair + 1];
      lanes[lane]->result[m] = first | second << 16;
    }
  }
}

std::vector<AsyncCopies::Copy> AsyncCopies::wait(size_t but) {
  if (ends_.size() <= but) return {};
  const size_t groups = ends_.size() - but, due = ends_[groups - 1];
  const auto middle = pending_.begin() + static_cast<std::ptrdiff_t>(due);
  std::vector<Copy> done(pending_.begin(), middle);
  pending_.erase(pending_.begin(), middle);
  ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(groups));
  for (size_t& end : ends_) end -= due;
  return done;
}

void AsyncCopies::clear() {
  pending_.clear();
  ends_.clear();
}

AsyncCopies& async_copies() { return scheduler().copies(); }

AsyncCopies& Scheduler::copies() {
  copies_.resize(std::max(copies_.size(), threads_.size()));
  return copies_[static_cast<size_t>(current_ - threads_.data())];
}

void Scheduler::combine_matrices(Operation operation, const Thread* lanes) {
  const auto gather = [&](auto& parts) {
    for (auto& part : parts)
      part = static_cast<std::decay_t<decltype(part)>>(lanes++->call.operands);
  };
  if (operation == Operation::product) {
    ProductPart* parts[warpSize];
    gather(parts);
    return multiply_matrices(parts);
  }
  MatrixRow* parts[warpSize];
  gather(parts);
  exchange_rows(parts, operation == Operation::rows_transposed);
}

}  // namespace emulator
