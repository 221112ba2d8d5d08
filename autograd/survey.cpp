#include "spool/autograd/survey.h"

#include <algorithm>
#include <utility>

#include "spool/runtime/memory/allocation_log.h"

namespace spool {

const SurveyedWork* Survey::peak() const {
  const auto at = std::ranges::max_element(works, {}, &SurveyedWork::live);
  return at == works.end() ? nullptr : &*at;
}

IdTable<NodeId, double> Survey::begins(Phase phase) const {
  IdTable<NodeId, double> all;
  for (size_t i = works.size(); i-- > 0;) {  // so that a node's first work is kept
    const SurveyedWork& work = works[i];
    if (work.phase != phase || work.micro_batch != 0 || work.node < 0 || work.is_nested) continue;
    if (!all.contains(work.node)) all.resize(static_cast<size_t>(work.node) + 1);
    all[work.node] = work.begin;
  }
  return all;
}

void Survey::start(Stream& stream) {
  check(stream.device().type == DeviceType::meta, "survey: only a step on meta can be surveyed");
  started_ = true;
  busy_until_ = static_cast<MetaStream&>(stream).busy();
  stream.arena().take_max_live();
  live_at_end_ = stream.memory().live;
}

void Survey::add_tape(Stream& stream) {
  if (!started_) start(stream);
  ++micro_batches;
}

void Survey::add_save(ValueId v, size_t bytes) {
  if (!is_first_tape()) return;
  if (!values.contains(v)) values.resize(static_cast<size_t>(v) + 1);
  const NodeId node = works[current_ - 1].node;
  SurveyedValue& value = values[v];
  value.bytes = bytes;
  if (value.first_saved < 0) value.first_saved = node;
  saves.push_back({v, node});
}

void Survey::undo(const Mark& mark) {
  for (; works.size() > mark.works; works.pop_back()) other_seconds += works.back().seconds;
  for (; saves.size() > mark.saves; saves.pop_back()) {
    NodeId& first = values[saves.back().value].first_saved;
    if (first == saves.back().node) first = -1;
  }
}

// The stream's clock has counted the seconds that are added here, so they are accounted for.
void Survey::repeat(size_t first, size_t last, size_t times) {
  for (size_t i = first; i < last; ++i) {
    const double seconds = static_cast<double>(times) * works[i].seconds;
    works[i].seconds += seconds;
    busy_until_ += seconds;
  }
}

// The node whose backward is in progress.
NodeId Survey::reader() const {
  if (current_ == 0) return -1;
  const SurveyedWork& work = works[current_ - 1];
  return work.phase == Phase::recompute ? work.reader : work.node;
}

void Survey::add_read(ValueId v) {
  if (is_first_tape()) reads.push_back({v, reader()});
}

void Survey::add_first_read(ValueId v) {
  if (is_first_tape()) values[v].first_read = reader();
}

// Bytes that came to life outside of all work count for the work that follows; what was live when
// work ended counts for that work alone.
void Survey::account(MetaStream& stream) {
  const double busy = stream.busy(), seconds = busy - std::exchange(busy_until_, busy);
  const size_t max = stream.arena().take_max_live();
  const size_t live_at_end = std::exchange(live_at_end_, stream.memory().live);
  if (current_ == 0) {
    other_seconds += seconds;
    if (max > live_at_end) live_between_ = std::max(live_between_, max);
    return;
  }
  SurveyedWork& work = works[current_ - 1];
  work.seconds += seconds;
  work.live = std::max(work.live, max);
}

void repeat(Survey* survey, Stream& stream, size_t count, const std::function<void(size_t)>& work) {
  if (!survey) return stream.repeat(count, work);
  size_t previous = 0, first_work = 0;
  stream.repeat(count, [&](size_t i) {
    const size_t works = survey->works.size();
    if (i > previous + 1) survey->repeat(first_work, works, i - previous - 1);
    previous = i;
    first_work = works;
    work(i);
  });
}

std::string description(const SurveyedWork& work) {
  if (work.phase == Phase::optimizer) return "the optimizer's update";
  const std::string node = sentence(work.op, " (node ", work.node, ")");
  if (work.phase != Phase::recompute) return sentence("the ", name(work.phase), " of ", node);
  return sentence("recomputing ", node, " for the backward of node ", work.reader);
}

void SurveyScope::begin(Stream& stream, Phase phase, NodeId node, const char* op) {
  if (log_) before_ = log_->enter({.task = name(phase), .op = op, .node = node});
  if (!survey_) return;
  stream_ = static_cast<MetaStream*>(&stream);
  survey_->account(*stream_);
  outer_ = survey_->current_;
  survey_->works.push_back({.phase = phase,
                            .node = node,
                            .op = op,
                            .reader = phase == Phase::recompute ? survey_->reader() : -1,
                            .micro_batch = std::max(survey_->micro_batches - 1, 0),
                            .begin = stream_->now(),
                            .live_before = stream_->memory().live,
                            .live = std::exchange(survey_->live_between_, 0),
                            .is_nested = outer_ != 0});
  survey_->current_ = survey_->works.size();
}

void SurveyScope::end() {
  if (log_) log_->enter(before_);
  if (!survey_) return;
  survey_->account(*stream_);
  survey_->current_ = outer_;
}

}  // namespace spool
