#pragma once

// The runtime, as research code includes it: streams and tensors, the tape and its ops, ops and
// kernels of one's own, hooks and offload, plans and rehearsals, optimizers. docs/public-headers.md
// says what is in each.  Check ops of your own with spool/testing.h.

#include "spool/autograd/offload.h"
#include "spool/autograd/op.h"
#include "spool/autograd/ops.h"
#include "spool/autograd/parameter.h"
#include "spool/autograd/plan.h"
#include "spool/autograd/program.h"
#include "spool/autograd/saved_tensor.h"
#include "spool/autograd/survey.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/launch.h"
#include "spool/models/optimizers/adamw.h"
#include "spool/planner/annotations.h"
#include "spool/planner/chunks.h"
#include "spool/planner/machine.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/policy.h"
#include "spool/planner/rehearsal.h"
#include "spool/planner/report/explanation.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/planner/report/timeline.h"
#include "spool/runtime/check.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/random.h"
#include "spool/runtime/tensor.h"
