#pragma once

// Instructions of compute capability 8.0 without a function in CUDA C++, which kernels write in PTX
// and call from here on the emulator: products of small matrices (mma), loads of matrices
// (ldmatrix), and asynchronous copies into shared memory (cp.async).
//
// An asynchronous copy writes NaN to its target at once, and what it read when the thread waits for
// it: as early and as late as the device may.  So a missing wait, or a copy to memory that others
// still read, gives wrong numbers.

#include <vector>

#include "intrinsics.h"

namespace emulator {

// A lane's part in mma.m16n8k16 of bf16 with sums in f32, as the PTX ISA divides the matrices.
struct ProductPart {
  uint32_t a[4], b[2];
  float c[4];
};
// A lane's part in ldmatrix.x4: a row of one of the matrices, and the words that the lane gets.
struct MatrixRow {
  uint16_t row[8];
  uint32_t result[4];
};

// The results of all lanes from the parts of all lanes.
void multiply_matrices(ProductPart* const (&lanes)[warpSize]);
void exchange_rows(MatrixRow* const (&lanes)[warpSize], bool transposed);

// The copies that a thread has begun and not waited for.
class AsyncCopies {
 public:
  struct Copy {
    void* to;
    uint4 bits;
    bool whole;  // 16 bytes, else 4
  };
  void add(const Copy& copy) { pending_.push_back(copy); }
  void end_group() { ends_.push_back(pending_.size()); }
  // Removes the copies of all groups but the last `but`.
  std::vector<Copy> wait(size_t but);
  void clear();

 private:
  std::vector<Copy> pending_;
  std::vector<size_t> ends_;  // of groups, in pending_
};
AsyncCopies& async_copies();  // of the running thread

inline void multiply_matrices(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              EMULATOR_WHERE) {
  ProductPart part{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  warp_operation({.operation = Operation::product, .mask = ~0u, .where = where, .operands = &part});
  std::memcpy(c, part.c, sizeof c);
}

// Each lane reads its row itself, so that the read shows where memory and races are checked.
template <class T>
void load_matrices(uint32_t (&to)[4], const T* row, bool transposed, EMULATOR_WHERE) {
  const uint4 bits = *aligned(reinterpret_cast<const uint4*>(row), where);
  MatrixRow part;
  std::memcpy(part.row, &bits, sizeof bits);
  warp_operation({.operation = transposed ? Operation::rows_transposed : Operation::rows,
                  .mask = ~0u,
                  .where = where,
                  .operands = &part});
  std::memcpy(to, part.result, sizeof to);
}

template <int bytes>
void copy_async(void* to, const void* from, bool there, EMULATOR_WHERE) {
  using Value = std::conditional_t<bytes == 16, uint4, unsigned>;
  Value* const target = aligned(static_cast<Value*>(to), where);
  const Value* const source = aligned(static_cast<const Value*>(from), where);
  uint4 bits = {};
  if (there) {
    const Value value = *source;
    std::memcpy(&bits, &value, sizeof value);
  }
  Value nan;
  std::memset(&nan, 0xff, sizeof nan);
  *target = nan;
  async_copies().add({to, bits, bytes == 16});
}

inline void end_copies() { async_copies().end_group(); }

inline void wait_for_copies(int but) {
  for (const AsyncCopies::Copy& copy : async_copies().wait(static_cast<size_t>(but))) {
    if (copy.whole) {
      *static_cast<uint4*>(copy.to) = copy.bits;
    } else {
      *static_cast<unsigned*>(copy.to) = copy.bits.x;
    }
  }
}

}  // namespace emulator
