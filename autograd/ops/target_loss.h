#pragma once

// What losses with a target for each row share: checks, specs of outputs, attributes and scale.

#include <string>

#include "spool/autograd/ops.h"

namespace spool {

struct TargetLoss {
  LossOptions options;

  bool is_mean() const { return options.reduction == Reduction::mean; }
  bool is_reduced() const { return options.reduction != Reduction::none; }

  std::string attributes() const {
    return in_words({{"reduction", name(options.reduction)},
                     {"ignored target", options.options.ignore_index},
                     {"vocabulary", options.options.vocabulary},
                     {"label smoothing", options.options.label_smoothing},
                     {"z loss", options.options.z_loss},
                     {"soft cap", options.options.soft_cap}});
  }

  // The spec of the loss; the targets are for the rows of x.
  Spec infer(const char* op, const Spec& x, const Spec& targets) const {
    check(targets.dtype == DType::i32 && targets.shape.numel() == x.shape.rows(), op,
          ": targets must be i32, one for each row of ", x, ", not ", targets);
    return {is_reduced() ? Shape{1} : targets.shape, accumulator(x.dtype)};
  }

  // What the losses are multiplied by, (1), of this type; absent: 1.  `memory` is kept as long as
  // it is used.
  template <class Pass>
  View scale(Pass& pass, const View& targets, DType type, Tensor& memory) const {
    if (!is_mean()) return {};
    if (const View given = pass.loss_scale()) return given;
    memory = pass.scratch({Shape{1}, type});
    pass.launch(CountTargets{
        .scale = memory, .targets = targets, .ignore_index = options.options.ignore_index});
    return memory;
  }
};

}  // namespace spool
