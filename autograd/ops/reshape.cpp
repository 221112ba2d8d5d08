#include <spdlog/fmt/fmt.h>

#include <numeric>

#include "spool/autograd/ops.h"
#include "spool/kernels/copy.h"

namespace spool {
namespace {

// The last dimensions of a shape that together become others.
struct LastDimensions {
  int from = 0, to = 0;  // how many there are

  // The fewest, which leave a first dimension of both; none: there are none such.
  LastDimensions(const Shape& x, const Shape& y) {
    int i = x.rank(), j = y.rank();
    if (i < 2 || j < 2 || x.numel() == 0) return;
    int64_t a = x[--i], b = y[--j];
    while (a != b && i > 0 && j > 0) {
      if (a < b) {
        a *= x[--i];
      } else {
        b *= y[--j];
      }
    }
    if (a != b || i == 0 || j == 0) return;
    from = x.rank() - i, to = y.rank() - j;
  }
};

// Elements keep their order.  "n(64h)->nhQ": C of (B, T, C) becomes (H, D); "nh->nh": of (B, T, C)
// and (B T, C) the last dimension stays; "n->n": no dimension but the first becomes others.
std::string notation_of(const Shape& x, const Shape& y) {
  const LastDimensions last(x, y);
  if (last.from == 0) return "n->n";
  const int64_t first_of_x = x[-last.from], first_of_y = y[-last.to];
  const int64_t extent = std::gcd(first_of_x, first_of_y);
  const auto term = [=](int64_t first, int dimensions, char letter) {
    std::string words = first == extent ? "nh" : fmt::format("n({}h)", first / extent);
    for (int d = 1; d < dimensions; ++d) words += static_cast<char>(letter + d - 1);
    return words;
  };
  return term(first_of_x, last.from, 'A') + "->" + term(first_of_y, last.to, 'Q');
}

struct Reshape final : Op {
  Shape shape;
  std::string notation;
  Reshape(const Shape& from, const Shape& to) : shape(to), notation(notation_of(from, to)) {}

  const char* name() const override { return "reshape"; }
  const char* indices() const override { return notation.c_str(); }

  // A part of its input does not tell the shape of the output; who applies the part does.
  Specs infer(const Specs& in) const override {
    const int64_t n = in[0].shape.numel();
    return {{n == shape.numel() ? shape : Shape{n}, in[0].dtype}};
  }
  Tensor view(const Tensor& x, const Spec& y) const override { return x.reshape(y.shape); }

  void forward(Forward& f) const override {
    const auto [x] = f.inputs<1>();
    const auto [y] = f.outputs<1>();
    if (x.data() == y.data()) return;
    f.launch(StridedCopy{.out = y, .in = x, .rows = 1, .width = x.numel()});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override { b.pass(0); }
};

}  // namespace

Var reshape(const Operand& x, const Shape& shape) {
  const Spec& from = x.spec();
  check(from.shape.numel() == shape.numel(), "reshape: ", from, " has ", from.shape.numel(),
        " elements, and ", shape, " has ", shape.numel(), "; they must have as many");
  return apply<Reshape>({x}, from.shape, shape);
}

}  // namespace spool
