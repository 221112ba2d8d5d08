#pragma once

// One table of small applications of every op.  op_test.cpp has check_op() check each, so a new op
// gets its tests by an entry here.

#include <vector>

#include "spool/autograd/checks/sample_run.h"

namespace spool::testing {

using op_checks::run_sample;
using op_checks::SampleOptions;
using op_checks::SampleRun;
using op_checks::SampleValues;

const std::vector<OpSample>& op_samples();

}  // namespace spool::testing
