#pragma once

// Kernels of AdamW on slices of tensors.

#include <vector>

#include "spool/kernels/adamw.h"
#include "spool/models/optimizers/buckets.h"

namespace spool {

// Some elements, of what may be absent.
inline View part(const View& whole, Range elements) {
  if (!whole) return {};
  const Spec spec{Shape{elements.size()}, whole.dtype()};
  return {whole.data() + static_cast<size_t>(elements.begin) * size_of(spec.dtype), spec};
}

inline View part(const View& row, int64_t begin, int64_t count) {
  return part(row, {begin, begin + count});
}

inline AdamW::Entry part(const AdamW::Entry& whole, Range elements) {
  AdamW::Entry entry = whole;
  for (View* v : {&entry.parameter, &entry.master, &entry.m, &entry.v, &entry.grad}) {
    *v = part(*v, elements);
  }
  entry.first = elements.begin;
  return entry;
}

// Hands the kernel on, with entry_of(slice) of each slice that has a gradient, in as many lists as
// it takes.
template <class EntryOf, class Launch>
void in_lists(const AdamW& kernel, const std::vector<Buckets::Slice>& slices,
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
