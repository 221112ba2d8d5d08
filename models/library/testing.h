#pragma once

// Checks of ops of one's own, as Spool's own are checked: check_op().  It needs no test framework.

#include "spool/autograd/checks/check_op.h"
#include "spool/autograd/checks/op_sample.h"
