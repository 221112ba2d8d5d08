#pragma once

// A launch of every kernel with arguments that fit each other, and what is free about each.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "spool/runtime/tensor.h"

namespace spool::testing {

enum class Freedom : uint8_t {
  none,
  may_be_absent,
  sets_size,  // no other argument says how large it is
  any_rows,   // nor how many rows it has
  any_float,  // nor of which of the floating types
};

// An argument that fits the others.
struct Argument {
  std::string name;
  Shape shape;
  DType type = DType::bf16;
  std::vector<Freedom> freedom = {};

  bool has(Freedom f) const { return std::ranges::find(freedom, f) != freedom.end(); }
};

class Given {
 public:
  Given(const std::vector<Argument>& all, Stream& stream) {
    for (const Argument& a : all) tensors_[a.name] = Tensor({a.shape, a.type}, stream);
  }
  View operator[](const char* name) const { return tensors_.at(name); }
  void set(const std::string& name, const Tensor& t) { tensors_[name] = t; }

 private:
  std::map<std::string, Tensor> tensors_;
};

struct Launch {
  std::string kernel;
  std::vector<Argument> arguments;
  std::function<void(const Given&, Stream&)> run;
};

std::vector<Launch> all_kernels();
std::vector<Launch> kernels_of_llama();  // among these
std::vector<Launch> kernels_of_parts();  // likewise

}  // namespace spool::testing
