#include "spool/autograd/saved_tensor.h"

namespace spool {
namespace {

class Kept final : public SavedTensor {
 public:
  explicit Kept(Tensor t) : tensor_(std::move(t)) {}
  Tensor unpack() override { return tensor_; }

 private:
  Tensor tensor_;
};

}  // namespace

std::unique_ptr<SavedTensor> keep(Tensor t) { return std::make_unique<Kept>(std::move(t)); }

}  // namespace spool
