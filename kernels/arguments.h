// Public: one of the headers of docs/public-headers.md.
#pragma once

// Checks that the arguments of a kernel fit each other, for its check_arguments():
//
//   void RowScale::check_arguments() const {  // y[n,c] = x[n,c] * scale[n]; y may be x
//     const Arguments a(name);
//     a.present("x", x, floating);
//     const int64_t N = x.shape().rows(), C = x.shape().row();
//     a.rows("y", y, x.dtype(), N, C);
//     a.elements("scale", scale, DType::f32, N);
//     a.same_or_apart("y", y, "x", x);
//     a.apart("y", y, {{"scale", scale}});
//   }
//
// Each throws Error (invalid) that names the kernel, the argument, what it is, and what fits.  They
// compare numbers, in a few nanoseconds; sentences are only made for errors.

#include <cstdint>
#include <initializer_list>

#include "spool/runtime/dtype.h"
#include "spool/runtime/tensor.h"

namespace spool {

// A set of types: DType::f32, or DType::f32 | DType::f64.
class Types {
 public:
  constexpr Types(DType t) : bits_(1u << static_cast<unsigned>(t)) {}
  constexpr bool has(DType t) const { return bits_ >> static_cast<unsigned>(t) & 1u; }
  friend constexpr Types operator|(Types a, Types b) { return Types(a.bits_ | b.bits_); }

 private:
  constexpr explicit Types(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

constexpr Types floating = Types(DType::f64) | DType::f32 | DType::bf16;
// The floating types, and the types that are only stored and converted.
constexpr Types convertible = floating | DType::f16 | DType::i8;

// The types of a gradient of values of this type: the same, or that of their sums.
constexpr Types gradient_of(DType t) { return Types(t) | accumulator(t); }

class Arguments {
 public:
  constexpr explicit Arguments(const char* kernel) : kernel_(kernel) {}

  // Present, and of one of these types.
  void present(const char* what, const View& v, Types types) const {
    if (!v || !types.has(v.dtype())) [[unlikely]]
      fail({.what = what, .found = v, .types = types});
  }
  // As present(), and of this many elements, in any shape.
  void elements(const char* what, const View& v, Types types, int64_t count) const {
    if (!v || !types.has(v.dtype()) || v.numel() != count) [[unlikely]]
      fail({.what = what, .found = v, .types = types, .rank = 1, .columns = count});
  }
  // As present(), and of this many rows and columns; all dimensions but the last count as rows.
  void rows(const char* what, const View& v, Types types, int64_t rows, int64_t columns) const {
    if (!v || !types.has(v.dtype()) || v.shape().row() != columns || v.numel() != rows * columns)
        [[unlikely]]
      fail({.what = what, .found = v, .types = types, .rank = 2, .rows = rows, .columns = columns});
  }
  // As rows(), with this many rows or more.
  void at_least_rows(const char* what, const View& v, Types types, int64_t rows,
                     int64_t columns) const {
    if (!v || !types.has(v.dtype()) || v.shape().row() != columns || v.numel() < rows * columns)
        [[unlikely]]
      fail({.what = what,
            .found = v,
            .types = types,
            .rank = 2,
            .rows = rows,
            .columns = columns,
            .or_more = true});
  }

  struct Named {
    const char* name;
    const View& view;
  };
  // `out` has no byte in common with any of these; absent ones have no bytes.
  void apart(const char* what, const View& out, std::initializer_list<Named> others) const {
    for (const Named& other : others) {
      if (overlap(out, other.view)) [[unlikely]]
        fail_overlap({what, out}, other, /*may_be_same=*/false);
    }
  }
  // As apart(), or `out` is exactly that memory.
  void same_or_apart(const char* what, const View& out, const char* name, const View& other) const {
    const bool same = out.data() == other.data() && out.dtype() == other.dtype();
    if (!same && overlap(out, other)) [[unlikely]]
      fail_overlap({what, out}, {name, other}, /*may_be_same=*/true);
  }

 private:
  struct Wanted {
    const char* what;
    const View& found;
    Types types;
    int rank = 0;  // of what fits; 0: any shape
    int64_t rows = 0, columns = 0;
    bool or_more = false;
  };
  static bool overlap(const View& a, const View& b) {
    const auto first = reinterpret_cast<uintptr_t>(a.data());
    const auto second = reinterpret_cast<uintptr_t>(b.data());
    return first < second + b.nbytes() && second < first + a.nbytes();
  }
  [[noreturn]] void fail(const Wanted&) const;
  [[noreturn]] void fail_overlap(const Named& out, const Named& other, bool may_be_same) const;

  const char* kernel_;
};

}  // namespace spool
