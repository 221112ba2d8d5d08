#include "spool/kernels/normal.h"

#include "spool/kernels/arguments.h"

namespace spool {

void NormalFill::check_arguments() const { Arguments(name).present("out", out, floating); }

}  // namespace spool
