#pragma once

// How optimizers' kernels (adamw.h, sgd.h) hold and round the weights that they update, for many
// tensors at once.  w is the master where there is one (then the parameter is its rounding), else
// the parameter.  The values that change from step to step are read from device memory:
//   schedule  f32: the learning rate, and what else the kernel says
//   clip      f32 (3): factor, norm of the gradients, whether the norm is finite (1 or 0)
//   random    i32 (4): seed, seed, step, unused
// If the norm is not finite, nothing changes.
//
// A bf16 parameter without a master is rounded stochastically: up or down, with probabilities that
// make its expected value the f32 w.
//   parameter = upper half of (bits of w + r)     finite if w is finite, NaN if w is NaN
// The 16 bits r of element i are half (i / 1024) mod 2, the lower first, of word i mod 4 of Philox
// with
//   key      random[0], random[1]
//   counter  (i / 2048 * 256 + i mod 1024 / 4) mod 2^32, index, random[2], 2^32 - 1
// where `index` distinguishes the tensors of a model.  The bits do not depend on earlier draws.
//
// An entry may be a slice of a tensor that begins at its element `first`.  Elements are
// independent, and their random bits depend on their position in the whole tensor, so updating a
// tensor in slices gives the same bits as updating it whole.
//
// What a launch writes (parameters, masters, state) overlaps nothing else of that launch.

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

constexpr int64_t weights_granule = 2048;  // elements that share their random words

// Throws unless the view is a row of `count` values of the type.
template <class Kernel>
void check_scalars(const char* what, const View& view, DType type, int64_t count) {
  check(bool(view), Kernel::name, ": ", what, " is absent");
  check(view.dtype() == type && view.numel() == count, Kernel::name, ": ", what, " must be ",
        name(type), " (", count, "), not ", view.spec());
}

// Throws if the types or sizes of an entry, or where its slice begins, are not supported.
template <class Kernel>
void check_entry(const Kernel& k, const typename Kernel::Entry& t) {
  const char* who = Kernel::name;
  const DType type = t.parameter.dtype();
  const bool alone = !t.master && !k.random, either = bool(t.master) != bool(k.random);
  check(type == DType::f32 ? alone : type == DType::bf16 && either, who, ": a parameter of type ",
        name(type), t.master ? " with" : " without", " a master, rounded ",
        k.random ? "stochastically" : "to nearest", ", is not supported; f32 has no master, and ",
        "bf16 either has a master or is rounded stochastically");
  check(t.grad.dtype() == DType::f32 || t.grad.dtype() == type, who, ": the gradient of a ",
        name(type), " parameter must be ", name(type), " or f32, not ", name(t.grad.dtype()));
  const auto check_size = [&](const char* what, const View& view) {
    check(view.numel() == t.parameter.numel(), who, ": a ", what, " of ", view.numel(),
          " elements does not fit its parameter, which has ", t.parameter.numel());
  };
  check_size("gradient", t.grad);
  if (t.master) check_size("master", t.master);
  for (const View& row : t.state()) {
    if (!row) continue;
    check(row.dtype() == DType::f32, who, ": state must be f32, not ", name(row.dtype()));
    check_size("state", row);
  }
  check(!t.master || t.master.dtype() == DType::f32, who, ": a master must be f32, not ",
        name(t.master.dtype()));
  check(t.first >= 0 && t.first % weights_granule == 0, who, ": a slice begins at element ",
        t.first, "; it must begin at a multiple of ", weights_granule);
}

// Throws if any argument does not fit; `scheduled` values change from step to step.
template <class Kernel>
void check_weights(const Kernel& k, int64_t scheduled) {
  check_scalars<Kernel>("schedule", k.schedule, DType::f32, scheduled);
  check_scalars<Kernel>("clip", k.clip, DType::f32, 3);
  if (k.random) check_scalars<Kernel>("random", k.random, DType::i32, 4);
  for (const auto& t : k.tensors) {
    check_entry(k, t);
    check(t.parameter.dtype() == k.tensors[0].parameter.dtype(), Kernel::name,
          ": the parameters of a launch must have one type");
  }
}

// What it costs to update the tensors, with flops for each element.
template <class Kernel>
Cost cost_of_update(const Kernel& k, double update_flops) {
  constexpr double draw = 14;  // flops an element
  Cost sum;
  for (const auto& t : k.tensors) {
    const double flops = k.random ? update_flops + draw : update_flops;
    sum.flops += flops * static_cast<double>(t.parameter.numel());
    sum.bytes +=
        bytes(t.parameter, t.grad) + 2 * bytes(t.master) + (t.master ? 0.0 : bytes(t.parameter));
    for (const View& row : t.state()) sum.bytes += 2 * bytes(row);
  }
  return sum;
}

}  // namespace spool
