#pragma once

// What an update needs of other ranks, if each has parts of the parameters
// (autograd/sharding/parameter_part.h) or of the state (own_row.h).

#include <span>

#include "spool/runtime/tensor.h"

namespace spool {

struct Parameter;
struct StateRange;  // optimizer.h

class OtherRanks {
 public:
  OtherRanks() = default;
  virtual ~OtherRanks() = default;
  OtherRanks(const OtherRanks&) = delete;
  OtherRanks& operator=(const OtherRanks&) = delete;

  // Whether the norm of the gradients has this rank's gradient of the parameter in it; another rank
  // has the same otherwise.
  virtual bool is_counted(const Parameter&) const = 0;
  // The squared norms of all, f64 (1), in place.
  virtual void add_up(const Tensor& squared) = 0;
  // Whether the others answer; then reads elements of the state, each of so many bytes, of whole
  // parameters.
  virtual bool answer() const = 0;
  virtual void read_state(const StateRange&, size_t element_bytes, std::span<std::byte> out) = 0;
};

}  // namespace spool
