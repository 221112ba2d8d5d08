#pragma once

// Parameters and optimizer state that ranks divide, read in whole: rank 0 asks for a range of them,
// and each of the others answers with those elements of it that are its own to give.
//
// Of parameters in parts (autograd/sharding/parameter_part.h) the first rank of those that have the
// same part gives it; of state that data-parallel ranks divide (row_pieces.h), each its pieces.

#include <functional>
#include <span>
#include <vector>

#include "spool/autograd/sharding/parameter_part.h"
#include "spool/autograd/sharding/rank_group.h"
#include "spool/models/optimizers/optimizer.h"
#include "spool/models/optimizers/other_ranks.h"
#include "spool/models/steps/exchange/gradient_exchange.h"

namespace spool {

class SharedState final : public OtherRanks {
 public:
  // `shards`: of the ranks that share each micro-batch; null: one has all of it.  All outlive it.
  SharedState(const std::vector<Parameter*>& all, GradientExchange&, const MeshRanks* shards,
              Stream&);

  bool is_counted(const Parameter&) const override;
  void add_up(const Tensor& squared) override;
  bool answer() const override { return others_answer_; }
  void read_state(const StateRange&, size_t element_bytes, std::span<std::byte> out) override;

  // Calls work() on rank 0, which may read the parameters and the state of all ranks meanwhile.
  // Returns whether work() was done; if it throws, that is false on the others.
  bool share(Optimizer&, const std::function<void()>& work);

 private:
  // A row of the state, of one of the optimizer's parameters; or a parameter itself.
  struct Request {
    bool is_of_parameter = false;
    StateRange range = {};
  };
  class Reading;

  const Parameter& parameter_of(const Request&) const;
  template <class Each>
  void for_each_stretch(int rank, const Request&, const Each&) const;
  std::string own_elements(const Request&, size_t element_bytes) const;
  void read(const Request&, size_t element_bytes, std::span<std::byte> out) const;
  bool serve() const;

  const std::vector<Parameter*>& all_;
  GradientExchange& exchange_;
  const MeshRanks* shards_;
  Stream& stream_;
  Communicator& ranks_;
  int neighbours_;
  Optimizer* optimizer_ = nullptr;  // while it is shared
  bool others_answer_ = false;
};

}  // namespace spool
