// Public: one of the headers of docs/public-headers.md.
#pragma once

#include <memory>
#include <optional>

#include "spool/runtime/tensor.h"

namespace spool {

class Homes;
class ParameterPart;

// A tensor that training changes.  Its address must not change while a tape knows it.
struct Parameter {
  Name name = "parameter";
  // On the device.  If the parameter lives on the host, absent but for while it is used.
  Tensor data = {};
  Spec declared = {};  // of data that is absent, or that is a part
  // The data in host memory, if it lives there, and what brings it to the device (homes.h).
  Tensor home = {};
  Homes* homes = nullptr;
  // What this rank has of it, if ranks share each micro-batch (sharding/parameter_part.h).
  std::shared_ptr<ParameterPart> part = {};
  // Absent until backward first writes it, then added to, until the optimizer frees it.  f32 where
  // it receives more than one contribution a step (micro-batches, ties, chunks), else of the type
  // of the data.
  Tensor grad = {};
  bool trainable = true;
  // Its place among all parameters of its model, for which random bits are drawn; absent unless it
  // is one of Parameters.
  std::optional<uint32_t> number = {};

  Purpose purpose() const { return trainable ? Purpose::parameter : Purpose::frozen; }
  // Of what is trained here, whether it is there or declared alone; throws if it is neither.
  const Spec& spec() const {
    if (data) return data.spec();
    check(declared.shape.rank() > 0, "parameter ", name, " has no data");
    return declared;
  }
  // Of the model's parameter: the same, unless this rank has a part of it.
  const Spec& whole() const { return part ? declared : spec(); }
  // Of its gradient, whose elements the state is of, too: the same as spec(), unless ranks store
  // it in flat parts; and some of these elements, which are stored here.
  const Spec& gathered() const;
  View elements(Range gathered) const;
};

}  // namespace spool
