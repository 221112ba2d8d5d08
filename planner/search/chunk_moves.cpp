#include "spool/planner/search/chunk_moves.h"

#include <algorithm>

#include "spool/autograd/chunks/cut.h"
#include "spool/planner/chunks.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// The smallest part of a plan's seconds that a lever is changed for.
constexpr double min_gain = 3e-4;

NodeId nodes_of(const Region& r) { return r.last - r.first; }

}  // namespace

double seconds_between(const CostsOfRows& fewer, const CostsOfRows& twice, size_t bytes) {
  const auto more = static_cast<double>(bytes - fewer.bytes);
  const double part = more / static_cast<double>(twice.bytes - fewer.bytes);
  const double chunks = 1 / (1 + part);  // of those with fewer rows
  return twice.seconds + (fewer.seconds - twice.seconds) * (2 * chunks - 1);
}

ChunkMoves::ChunkMoves(const MeasuredSegments& measured, const Levers& levers, Trials& trials)
    : measured_(measured), levers_(levers), trials_(trials) {
  if (levers.loss_rows) return;
  for (const Segment& s : measured.segments) {
    loss_extent_ = std::max(loss_extent_, chunkable_rows(*measured.program, s));
  }
}

std::vector<ChunkMoves::Lever> ChunkMoves::levers_of(const FoundPlan& found) const {
  std::vector<Lever> all;
  if (loss_extent_ > 1 && found.loss_rows > 0) {
    const int64_t chunks = ceil_div(loss_extent_, found.loss_rows);
    all.push_back({.is_loss = true, .chunks = chunks, .extent = loss_extent_});
  }
  if (!levers_.placement || !levers_.regions) return all;
  for (const Region& r : found.plan.regions) {
    const auto is_it = [&](const Lever& lever) {
      return !lever.is_loss && lever.nodes == nodes_of(r) && lever.chunks == r.chunks;
    };
    if (r.chunks == 1) continue;
    const int64_t extent = cut(*measured_.program, r.first, r.last).extent;
    const auto known = std::ranges::find_if(all, is_it);
    if (known == all.end()) {
      all.push_back({.nodes = nodes_of(r), .chunks = r.chunks, .extent = extent});
    } else {
      known->extent = std::min(known->extent, extent);
    }
  }
  return all;
}

Trials::Trial& ChunkMoves::with_chunks(const FoundPlan& found, const Lever& lever, int64_t chunks) {
  Plan plan = found.plan;
  int64_t rows = found.loss_rows;
  if (lever.is_loss) {
    rows = chunks > 1 ? ceil_div(lever.extent, chunks) : 0;
    plan.chunks = rows > 0 ? chunk_rows(*measured_.program, rows).chunks : IdTable<NodeId, int>{};
  }
  for (Region& r : plan.regions) {
    const bool is_it = !lever.is_loss && nodes_of(r) == lever.nodes && r.chunks == lever.chunks;
    if (is_it) r.chunks = static_cast<int>(chunks);
  }
  return trials_.of(std::move(plan), rows);
}

bool ChunkMoves::fits(Trials::Trial& trial, size_t budget) {
  if (trial.found.host_bytes > levers_.host_bytes) return false;
  return trials_.laid_out(trial, budget).peak <= budget;
}

// Finds the fewest chunks of a lever that fit, by halves and then between the last two.
void ChunkMoves::set_fewest(FoundPlan& found, const Lever& lever, size_t budget) {
  const int64_t min = lever.is_loss ? 1 : 2;
  const FoundPlan base = found;
  int64_t fits_with = lever.chunks, fails_with = min - 1;
  while (fits_with > min) {
    const int64_t fewer = std::max(fits_with / 2, min);
    Trials::Trial& trial = with_chunks(base, lever, fewer);
    if (trial.found.seconds >= found.seconds * (1 - min_gain)) return;
    if (!fits(trial, budget)) {
      fails_with = fewer;
      break;
    }
    found = trial.found;
    fits_with = fewer;
  }
  while (fits_with - fails_with > 1) {
    const int64_t middle = (fits_with + fails_with) / 2;
    const int64_t rows = ceil_div(lever.extent, middle);
    if (rows == ceil_div(lever.extent, fits_with)) {
      fits_with = middle;  // chunks of the same rows
      continue;
    }
    if (rows == ceil_div(lever.extent, fails_with)) {
      fails_with = middle;
      continue;
    }
    Trials::Trial& trial = with_chunks(base, lever, middle);
    const bool is_better = trial.found.seconds < found.seconds && fits(trial, budget);
    if (is_better) found = trial.found;
    (is_better ? fits_with : fails_with) = middle;
  }
}

FoundPlan ChunkMoves::faster_within(size_t budget, FoundPlan found) {
  for (const Lever& lever : levers_of(found)) set_fewest(found, lever, budget);
  return found;
}

FoundPlan ChunkMoves::smaller(FoundPlan found) {
  for (const Lever& lever : levers_of(found)) {
    const FoundPlan base = found;
    for (int64_t chunks = 2 * lever.chunks; chunks <= lever.extent; chunks *= 2) {
      Trials::Trial& trial = with_chunks(base, lever, chunks);
      if (!fits(trial, found.peak - 1)) break;
      found = trial.found;
    }
  }
  return found;
}

}  // namespace spool
