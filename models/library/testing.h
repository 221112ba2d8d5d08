#pragma once

// Tests custom ops with check_op(), as Spool tests its own.  It needs no test framework.

#include "spool/autograd/checks/check_op.h"
#include "spool/autograd/checks/op_sample.h"
