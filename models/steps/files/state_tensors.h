#pragma once

// An optimizer's state as tensors of files, and the file of a checkpoint that has it all.

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "spool/models/formats/named_parameters.h"
#include "spool/models/optimizers/optimizer.h"

namespace spool {

// One row of the state as a tensor per parameter of a model; absent for parameters that are not the
// optimizer's.
std::vector<TensorContents> state_row(Optimizer&, size_t row, const Parameters&);

// One tensor per parameter: its master, or the parameter itself if it has none.
std::vector<TensorContents> exact_parameters(Optimizer&, const Parameters&);

// The masters, where there are any; absent for parameters that are not the optimizer's.
std::vector<TensorContents> masters(Optimizer&, const Parameters&);

// Whether there are masters.
bool has_masters(const Optimizer&);

// optimizer.safetensors in a checkpoint's directory: m.NAME, v.NAME, ... of the parameters that are
// trained, where NAME is what the files of the model call a tensor.
class OptimizerFile {
 public:
  static constexpr const char* name = "optimizer.safetensors";
  // Names tensors that are parallel to the parameters, each behind the prefix.
  using NameTensors = std::function<std::vector<NamedTensor>(
      const std::vector<TensorContents>& parallel, std::string_view prefix)>;

  // The optimizer and the parameters outlive this.
  OptimizerFile(Optimizer&, const Parameters&, const NameTensors&);

  size_t nbytes() const;
  void save(const std::filesystem::path& checkpoint, const Metadata&) const;
  // Sets the state, and what is padding to its initial value.  Tensors that are `ignored` may be in
  // the file besides.
  void load(const std::filesystem::path& checkpoint,
            const std::function<bool(std::string_view tensor)>& ignored = {},
            const FileProgress& = {}) const;

 private:
  Optimizer& optimizer_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace spool
