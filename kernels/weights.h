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
// What a launch writes (parameters, masters, state) overlaps nothing else of that launch, which is
// checked within each entry.

#include "spool/kernels/arguments.h"
#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

constexpr int64_t weights_granule = 2048;  // elements that share their random words

// Throws if the types or sizes of an entry, or where its slice begins, are not supported, or if
// what is written overlaps anything else of the entry.
template <class Kernel>
void check_entry(const Kernel& k, const typename Kernel::Entry& t) {
  const Arguments a(Kernel::name);
  // nvcc drops the braces around what depends on the template's argument.
  const View &parameter = t.parameter, &master = t.master, &grad = t.grad;
  a.present("a parameter", t.parameter, Types(DType::f32) | DType::bf16);
  const DType type = t.parameter.dtype();
  const int64_t n = t.parameter.numel();
  const bool alone = !t.master && !k.random, either = bool(t.master) != bool(k.random);
  check(type == DType::f32 ? alone : either, Kernel::name, ": a parameter of type ", name(type),
        t.master ? " with" : " without", " a master, rounded ",
        k.random ? "stochastically" : "to nearest", ", is not supported; f32 has no master, and ",
        "bf16 either has a master or is rounded stochastically");
  a.elements("the gradient of a parameter", t.grad, Types(DType::f32) | type, n);
  a.apart("a parameter", parameter, {{"its gradient", grad}, {"its master", master}});
  if (t.master) a.elements("a master", t.master, DType::f32, n);
  a.apart("a master", master, {{"the gradient", grad}});
  for (const View& row : t.state()) {
    if (!row) continue;
    a.elements("a parameter's state", row, DType::f32, n);
    a.apart("a parameter's state", row,
            {{"the parameter", parameter}, {"its master", master}, {"its gradient", grad}});
  }
  check(t.first >= 0 && t.first % weights_granule == 0, Kernel::name,
        ": a slice begins at element ", t.first, "; it must begin at a multiple of ",
        weights_granule);
}

// Throws if any argument does not fit; `scheduled` values change from step to step.
template <class Kernel>
void check_weights(const Kernel& k, int64_t scheduled) {
  const Arguments a(Kernel::name);
  a.elements("schedule", k.schedule, DType::f32, scheduled);
  a.elements("clip", k.clip, DType::f32, 3);
  if (k.random) a.elements("random", k.random, DType::i32, 4);
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
