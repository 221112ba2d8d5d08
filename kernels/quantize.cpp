#include "spool/kernels/quantize.h"

#include "spool/kernels/arguments.h"

namespace spool {

void Quantize::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.rows("q", q, DType::i8, x.shape().rows(), x.shape().row());
  all.elements("scale", scale, DType::f32, x.shape().rows());
  all.apart("q", q, {{"scale", scale}, {"x", x}});
  all.apart("scale", scale, {{"x", x}});
}

void Dequantize::check_arguments() const {
  const Arguments all(name);
  all.present("x", x, floating);
  all.rows("q", q, DType::i8, x.shape().rows(), x.shape().row());
  all.elements("scale", scale, DType::f32, x.shape().rows());
  all.apart("x", x, {{"q", q}, {"scale", scale}});
}

}  // namespace spool
