#include "spool/kernels/arguments.h"

#include <string>

#include "spool/runtime/check.h"

namespace spool {
namespace {

std::string list_of(Types types) {
  std::string list;
  for (const DType t : enumerators<DType>()) {
    if (types.has(t)) list += (list.empty() ? "" : " or ") + std::string(name(t));
  }
  return list;
}

}  // namespace

void Arguments::fail(const Wanted& w) const {
  std::string fits = list_of(w.types);
  const char* const more = w.or_more ? "at least " : "";
  if (w.rank == 1) fits += sentence(" (", w.columns, ")");
  if (w.rank == 2) fits += sentence(" (", more, w.rows, ", ", w.columns, ")");
  const std::string found = w.found ? sentence(w.found.spec()) : "absent";
  spool::fail(ErrorKind::invalid, kernel_, ": ", w.what, " is ", found, ", and ", fits,
              " would fit", w.rank > 0 ? " the other arguments" : "",
              w.found && is_only_stored(w.found.dtype()) ? "; convert it first" : "");
}

void Arguments::fail_overlap(const Named& out, const Named& other, bool may_be_same) const {
  spool::fail(
      ErrorKind::invalid, kernel_, ": ", out.name, " ", out.view.spec(), " overlaps the memory of ",
      other.name, " ", other.view.spec(),
      may_be_same ? "; it must be the same memory or apart from it" : "; it must be apart from it");
}

}  // namespace spool
