#include "spool/autograd/parameters.h"

#include <algorithm>
#include <iterator>

#include "spool/autograd/homes.h"
#include "spool/autograd/sharding/parameter_part.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/normal.h"

namespace spool {

const Spec& Parameter::gathered() const { return part ? part->gathered() : spec(); }

View Parameter::elements(Range some) const {
  if (some.size() == data.numel()) return data;
  const int64_t begin = part ? part->place_of(some) : some.begin;
  return data.view().slice_elements({begin, begin + some.size()});
}

Parameter& Parameters::add(std::string_view name, const Shape& shape,
                           const InitialValues& initial) {
  return add(name, Spec{shape, dtype_}, initial);
}

Parameter& Parameters::add(std::string_view name, const Spec& spec, const InitialValues& initial) {
  const Label label{.name = name, .purpose = trains_added_ ? Purpose::parameter : Purpose::frozen};
  const bool has_data = !stream_.declares_parameters();
  Parameter& p = insert(name, has_data ? Tensor(spec, stream_, label) : Tensor(), &initial);
  p.declared = spec;
  return p;
}

Parameter& Parameters::add(std::string_view name, Tensor values) {
  check(bool(values), "parameters: ", name, " has no tensor; give it one, or a shape");
  const Spec spec = values.spec();
  Parameter& p = insert(name, std::move(values), nullptr);
  p.declared = spec;
  return p;
}

Parameter& Parameters::insert(std::string_view name, Tensor data, const InitialValues* initial) {
  const Name lasting = name;
  const bool is_new = by_name_.emplace(lasting, all_.size()).second;
  check(is_new, "parameters: there is a parameter ", name,
        " already; files tell parameters apart by their names, so give each one its own");
  all_.push_back(&owned_.emplace_back(Parameter{.name = lasting,
                                                .data = std::move(data),
                                                .trainable = trains_added_,
                                                .number = static_cast<uint32_t>(all_.size())}));
  initial_.push_back(initial ? *initial : InitialValues{});
  drawn_.push_back(initial != nullptr);
  return *all_.back();
}

void Parameters::initialise(uint64_t seed) {
  for (size_t i = 0; i < all_.size(); ++i) draw(i, seed);
}

void Parameters::initialise_trained(uint64_t seed) {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i]->trainable) draw(i, seed);
  }
}

void Parameters::draw(size_t parameter, uint64_t seed) {
  const Parameter& p = *all_[parameter];
  if (!drawn_[parameter]) return;
  if (p.home && !p.data) return with(parameter, [&] { draw(parameter, seed); });
  if (!p.data) return;
  const auto [constant, deviation] = initial_[parameter];
  if (deviation == 0) {
    launch(Fill{.out = p.data, .value = constant}, stream_);
  } else if (p.part && p.part->is_cut()) {
    p.part->draw(p.data, deviation, seed, *p.number);
  } else {
    launch(NormalFill{.out = p.data, .deviation = deviation, .seed = seed, .tensor = *p.number},
           stream_);
  }
}

void Parameters::allocate_declared(const std::vector<bool>& away) {
  for (size_t i = 0; i < all_.size(); ++i) {
    Parameter& p = *all_[i];
    if (p.data || (i < away.size() && away[i])) continue;
    p.data = Tensor(p.declared, stream_, {.name = p.name, .purpose = p.purpose()});
  }
}

void Parameters::with(size_t number, const std::function<void()>& work) const {
  check(number < all_.size(), "parameters: there is no parameter ", number, " among the ",
        all_.size(), " of the model");
  Parameter& p = *all_[number];
  if (!p.home || p.data) return work();
  p.homes->load(p);
  try {
    work();
  } catch (...) {
    p.data = Tensor::on_host(p.name);
    throw;
  }
  p.homes->store(p);
}

void Parameters::freeze() {
  for (Parameter* p : all_) p->trainable = false;
}

std::vector<Parameter*> Parameters::trainable() const {
  std::vector<Parameter*> some;
  std::ranges::copy_if(all_, std::back_inserter(some), &Parameter::trainable);
  return some;
}

Parameter& Parameters::named(std::string_view name) const {
  const auto found = by_name_.find(name);
  check(found != by_name_.end(), "parameters: there is no parameter ", name, " among the ",
        all_.size(), " of the model");
  return *all_[found->second];
}

int64_t Parameters::numel() const {
  int64_t sum = 0;
  for (const Parameter* p : all_) sum += p->whole().shape.numel();
  return sum;
}

}  // namespace spool
