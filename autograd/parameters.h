// Public: one of the headers of docs/public-headers.md.
#pragma once

// Owns the parameters of a model, at addresses that do not change, with their names and initial
// values.  They stay in the order in which they were added; a parameter's place in it is the number
// that its initial values and random bits are drawn by.

#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spool/autograd/parameter.h"

namespace spool {

// A parameter's initial values: normal numbers around zero if there is a deviation, which depend on
// the seed, the parameter's place in the order and the element alone (kernels/normal.h); else the
// constant.
struct InitialValues {
  float constant = 0;
  float deviation = 0;
};
constexpr InitialValues zeros() { return {}; }
constexpr InitialValues ones() { return {.constant = 1}; }
constexpr InitialValues normal(float deviation) { return {.deviation = deviation}; }

class Parameters {
 public:
  // `dtype` is for parameters added without one.  The stream outlives the parameters.
  explicit Parameters(Stream& stream, DType dtype = DType::f32) : stream_(stream), dtype_(dtype) {}
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // Allocates a parameter without setting it; initialise() does.  On a stream that declares
  // parameters it only notes the spec.  Throws if the name is taken.
  Parameter& add(std::string_view name, const Shape&, const InitialValues& = {});
  Parameter& add(std::string_view name, const Spec&, const InitialValues& = {});
  // Adds one that begins with the given values, which initialise() leaves alone.
  Parameter& add(std::string_view name, Tensor values);

  // Gives memory to those that are declared alone, except for these numbers, which live on the host
  // (homes.h); without values.
  void allocate_declared(const std::vector<bool>& away);
  // Calls work() with the parameter's data on the device, if need be as a copy, which then replaces
  // what is on the host.
  void with(size_t number, const std::function<void()>& work) const;

  // Those that are there are no longer trained: each costs its weights and nothing else.
  void freeze();
  // Whether those that are added from now on are trained; the memory of others counts as frozen.
  void train_added(bool trained) { trains_added_ = trained; }

  // Draws the initial values on the device, of those that have data.  Of a part it has the numbers
  // of the whole, which is drawn in pieces.
  void initialise(uint64_t seed);
  // The same of those that are trained alone.
  void initialise_trained(uint64_t seed);

  Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }
  const std::vector<Parameter*>& all() const { return all_; }
  operator const std::vector<Parameter*>&() const { return all_; }
  // Those that are trained, in the same order: what an optimizer gets.
  std::vector<Parameter*> trainable() const;
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  size_t size() const { return all_.size(); }
  Parameter* operator[](size_t i) const { return all_[i]; }
  // Throws if there is none of this name.
  Parameter& named(std::string_view name) const;
  // Elements of all parameters, as the model has them.
  int64_t numel() const;

 private:
  Parameter& insert(std::string_view name, Tensor, const InitialValues*);
  void draw(size_t parameter, uint64_t seed);

  Stream& stream_;
  DType dtype_;
  std::deque<Parameter> owned_;
  std::vector<Parameter*> all_;
  std::vector<InitialValues> initial_;  // parallel to all_; unused for those with values
  std::vector<bool> drawn_;             // whether initialise() sets them
  std::unordered_map<std::string_view, size_t> by_name_;
  bool trains_added_ = true;
};

}  // namespace spool
