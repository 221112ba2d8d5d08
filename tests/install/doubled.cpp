// The same functor as in the CUDA source.

#include "doubled.h"

spool::Var doubled_elsewhere(const spool::Operand& x) { return spool::map(Doubled(), x); }

bool runs_on_cuda_elsewhere() { return spool::MapForward<Doubled, 1>::has_cuda_kernel(); }
