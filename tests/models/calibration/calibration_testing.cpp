#include "tests/models/calibration/calibration_testing.h"

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/tensor.h"

namespace spool::testing {
namespace {

class RepeatedSums final : public RepeatedWork {
 public:
  RepeatedSums(const Sums& sums, Stream& stream)
      : sums_(sums),
        stream_(stream),
        a_({Shape{sums.elements}, DType::f32}, stream),
        sum_({Shape{sums.elements}, DType::f32}, stream) {}

  void run(int64_t number) override {
    launch(Fill{.out = a_, .value = static_cast<float>(number)}, stream_);
    launch(Add{.out = sum_, .a = a_, .b = a_}, stream_);
    launch(Add{.out = sum_, .a = sum_, .b = a_}, stream_);
    sums_.after_run();
  }

 private:
  Sums sums_;
  Stream& stream_;
  Tensor a_, sum_;
};

}  // namespace

MeasurableWork measurable(const Sums& sums) {
  return {.open = [sums](Stream& stream, const WorkMemory&) {
    return std::make_unique<RepeatedSums>(sums, stream);
  }};
}

}  // namespace spool::testing
