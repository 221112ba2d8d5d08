// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// AdamW kernels on slices of tensors (buckets.h).

#include <vector>

#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/buckets.h"

namespace spool {

// A range of elements as one row; absent if `whole` is.
inline View slice_of(const View& whole, Range elements) {
  if (!whole) return {};
  const Spec spec{Shape{elements.size()}, whole.dtype()};
  return {whole.data() + static_cast<size_t>(elements.begin) * size_of(spec.dtype), spec};
}

inline View slice_of(const View& row, int64_t begin, int64_t count) {
  return slice_of(row, {begin, begin + count});
}

inline AdamW::Entry slice_of(const AdamW::Entry& whole, Range elements) {
  AdamW::Entry entry = whole;
  for (View* v : {&entry.parameter, &entry.master, &entry.m, &entry.v, &entry.grad}) {
    *v = slice_of(*v, elements);
  }
  entry.first = elements.begin;
  return entry;
}

// Calls launch_list with the kernel and entry_of(slice) of each slice that has a gradient, several
// times if they exceed the capacity of one kernel's list.
template <class EntryOf, class Launch>
void launch_in_lists(const AdamW& kernel, const std::vector<Buckets::Slice>& slices,
                     const EntryOf& entry_of, const Launch& launch_list) {
  AdamW k = kernel;
  for (const Buckets::Slice& slice : slices) {
    const AdamW::Entry entry = entry_of(slice);
    if (!entry.grad) continue;
    if (k.tensors.full()) {
      launch_list(k);
      k.tensors = {};
    }
    k.tensors.add(entry);
  }
  if (k.tensors.size() > 0) launch_list(k);
}

}  // namespace spool
