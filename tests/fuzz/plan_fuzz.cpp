#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "spool/planner/plan_file.h"
#include "spool/planner/plan_json.h"
#include "spool/planner/report/plan_diff.h"
#include "spool/runtime/files/json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace spool;
  const auto path = fuzz::file_with({data, size});
  fuzz::read([&] {
    const StoredPlan plan = load_plan(path);
    if (plan_from_json({to_json(plan), "what was read"}) != plan) std::abort();
    diff({}, plan.plan);
  });
  return 0;
}
