#include "spool/kernels/normal.h"

#include "spool/kernels/arguments.h"

namespace spool {

void NormalFill::check_arguments() const {
  Arguments(name).present("out", out, floating);
  check(first >= 0 && first % 4 == 0, name, ": first is ", first, ", and not a multiple of 4");
}

}  // namespace spool
