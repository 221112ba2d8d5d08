#pragma once

// Three small nets written with ops.h alone: an image classifier, a Llama, and a mixture of two
// experts.

#include <memory>
#include <vector>

#include "spool/autograd/step_model.h"

namespace spool::testing {

class SmallNet : public StepModel {
 public:
  Parameters& parameters() override { return parameters_; }
  void initialise(uint64_t seed) override;
  void upload_placeholder() override { upload(0); }
  virtual void upload(int64_t micro) = 0;

 protected:
  SmallNet(DType dtype, Stream& stream) : parameters_(stream, dtype) {}
  Parameter& add_parameter(const std::string& name, const Shape& shape) {
    return parameters_.add(name, shape, spool::normal(0.3f));
  }
  Tensor input(const Spec&);
  void draw(const Tensor& ids, int32_t below, int64_t micro);
  void draw(const Tensor& numbers, int64_t micro);

  Parameters parameters_;
};

enum class NetKind { classifier, llama, experts };
inline constexpr NetKind net_kinds[] = {NetKind::classifier, NetKind::llama, NetKind::experts};
std::unique_ptr<SmallNet> make_net(NetKind, DType, Stream&);

}  // namespace spool::testing
