#include "spool/planner/search/segments.h"

#include <algorithm>
#include <map>

#include "spool/runtime/hash.h"

namespace spool {
namespace {

// Values smaller than 1/32 of a segment's largest are no candidates.
constexpr size_t smallest_part = 32;

// Where the values of a program are read and saved.
class Uses {
 public:
  explicit Uses(const Program& program)
      : program_(program), last_read_(program.values.size(), -1), savers_(program.values.size()) {
    for (NodeId n = 0; n < program.nodes.next_id(); ++n) {
      for (const ValueId v : program.nodes[n].inputs) last_read_[v] = n;
      for (const ValueId v : program.nodes[n].saves) savers_[v].push_back(n);
    }
  }

  bool is_saved(ValueId v) const { return !savers_[v].empty(); }
  bool is_saved_outside(ValueId v, NodeId first, NodeId last) const {
    return std::ranges::any_of(savers_[v], [&](NodeId n) { return n < first || n > last; });
  }
  bool is_read_after(ValueId v, NodeId last) const {
    return last_read_[v] > last || program_.values[v].is_observed;
  }
  // Bytes of the values computed up to this node and read after it.
  std::vector<size_t> crossing() const {
    std::vector<size_t> bytes(program_.nodes.size() + 1);
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      const NodeId producer = program_.values[v].producer;
      if (producer < 0) continue;
      for (NodeId n = producer; n < last_read_[v]; ++n) {
        bytes[static_cast<size_t>(n)] += program_.values[v].spec.nbytes();
      }
    }
    return bytes;
  }

 private:
  const Program& program_;
  IdTable<ValueId, NodeId> last_read_;
  IdTable<ValueId, std::vector<NodeId>> savers_;
};

class SegmentFinder {
 public:
  SegmentFinder(const Program& program, const std::vector<Region>& regions)
      : program_(program), regions_(regions), uses_(program), crossing_(uses_.crossing()) {}

  std::vector<Segment> find() {
    NodeId next = 0;
    for (const TapeScope& scope : program_.scopes) {
      if (!scope.is_block()) continue;
      add(next, scope.first - 1);
      add(scope.first, scope.last);
      next = scope.last + 1;
    }
    add(next, program_.nodes.next_id() - 1);
    for (Segment& s : segments_) s.kind = kind_of(s);
    return std::move(segments_);
  }

 private:
  // The values of nodes `first` to `last` that only their own backward reads, the largest first;
  // but before them the first that is gathered, which stands for all that are.
  std::vector<ValueId> candidates(NodeId first, NodeId last) const {
    std::vector<ValueId> all, gathered;
    size_t largest = 0;
    for (NodeId n = first; n <= last; ++n) {
      if (!program_.nodes[n].op->recomputable()) continue;
      for (const ValueId v : program_.nodes[n].outputs) {
        if (!uses_.is_saved(v) || uses_.is_saved_outside(v, first, last)) continue;
        (program_.nodes[n].op->gathers() ? gathered : all).push_back(v);
        largest = std::max(largest, bytes(v));
      }
    }
    std::erase_if(all, [&](ValueId v) { return bytes(v) < largest / smallest_part; });
    std::ranges::stable_sort(all, std::greater(), [&](ValueId v) { return bytes(v); });
    if (!gathered.empty()) all.insert(all.begin(), gathered.front());
    return all;
  }
  size_t bytes(ValueId v) const { return program_.values[v].spec.nbytes(); }

  // Adds the nodes `first` to `last` as one segment or several.
  void add(NodeId first, NodeId last) {
    while (first <= last) {
      const NodeId end = end_of_segment(first, last);
      Segment s{.first = first, .last = end, .candidates = candidates(first, end)};
      const size_t max = max_candidates + (has_gathered(program_, s) ? 1 : 0);
      if (s.candidates.size() > max) s.candidates.resize(max);
      segments_.push_back(std::move(s));
      first = end + 1;
    }
  }

  // Ends a segment of many nodes where the fewest bytes cross, in its second half.
  NodeId end_of_segment(NodeId first, NodeId last) const {
    if (candidates(first, last).size() <= 2 * max_candidates) return last;
    NodeId end = first;
    while (end < last && candidates(first, end + 1).size() <= max_candidates) ++end;
    NodeId best = end;
    for (NodeId n = end; n >= first + (end - first) / 2; --n) {
      if (crossing_[static_cast<size_t>(n)] < crossing_[static_cast<size_t>(best)]) best = n;
    }
    return best;
  }

  int kind_of(const Segment& s) {
    const uint64_t hash = structure(s);
    return kind_of_hash_.try_emplace(hash, static_cast<int>(kind_of_hash_.size())).first->second;
  }

  uint64_t structure(const Segment& s) const {
    Hash hash(0);
    std::map<ValueId, int64_t> numbers;  // of values computed elsewhere, in the order of reading
    const auto add_value = [&](ValueId v) {
      const Value& value = program_.values[v];
      const bool inside = value.producer >= s.first;
      const auto number = static_cast<int64_t>(numbers.size());
      hash.add(inside ? int64_t{value.producer} - s.first
                      : -1 - numbers.try_emplace(v, number).first->second);
      hash.add(std::string_view(name(value.spec.dtype)));
      for (int i = 0; i < value.spec.shape.rank(); ++i) hash.add(value.spec.shape[i]);
      // Keeping the model's inputs costs nothing.
      const bool is_input = value.producer < 0 && !value.parameter;
      hash.add(uint64_t{is_input} << 2 | uint64_t{value.parameter != nullptr} << 1 |
               uint64_t{value.needs_grad});
    };
    for (NodeId n = s.first; n <= s.last; ++n) {
      const Node& node = program_.nodes[n];
      hash.add(std::string_view(node.op->name()));
      hash.add(std::string_view(node.op->attributes()));
      for (const ValueId v : node.inputs) add_value(v);
      hash.add(uint64_t{node.outputs.size()});
      for (const ValueId v : node.outputs) {
        add_value(v);
        hash.add(uint64_t{uses_.is_read_after(v, s.last)});
      }
      hash.add(uint64_t{node.saves.size()});
    }
    for (const Region& r : regions_) {
      if (r.last < s.first || r.first > s.last) continue;
      for (const int64_t number : {r.first - s.first, r.last - s.first, r.chunks}) hash.add(number);
    }
    return hash.state();
  }

  const Program& program_;
  const std::vector<Region>& regions_;
  Uses uses_;
  std::vector<size_t> crossing_;
  std::map<uint64_t, int> kind_of_hash_;
  std::vector<Segment> segments_;
};

}  // namespace

bool has_gathered(const Program& program, const Segment& s) {
  if (s.candidates.empty()) return false;
  return program.nodes[program.values[s.candidates.front()].producer].op->gathers() != nullptr;
}

std::vector<Segment> segments_of(const Program& program, const std::vector<Region>& regions) {
  return SegmentFinder(program, regions).find();
}

int most_frequent_kind(const std::vector<Segment>& segments) {
  std::map<int, size_t> counts;
  for (const Segment& s : segments) ++counts[s.kind];
  return std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
}

}  // namespace spool
