#include "spool/autograd/fingerprint.h"

#include <string_view>

namespace spool {

namespace {

class Hash {
 public:
  explicit Hash(uint64_t before) : state_(before) {}

  uint64_t state() const { return state_; }

  // One step of splitmix64 (Steele, Lea, Flood 2014).
  void add(uint64_t word) {
    uint64_t z = (state_ ^ word) + 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    state_ = z ^ (z >> 31);
  }
  void add(int64_t n) { add(static_cast<uint64_t>(n)); }

  // The bytes of eight characters are a word on every machine alike; the length tells where a text
  // ends.
  void add(std::string_view text) {
    add(uint64_t{text.size()});
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 8))) {
      uint64_t word = 0;
      for (const char c : text.substr(0, 8)) word = word << 8 | static_cast<unsigned char>(c);
      add(word);
    }
  }

  void add(const Spec& spec) {
    add(std::string_view(name(spec.dtype)));
    add(int64_t{spec.shape.rank()});
    for (int i = 0; i < spec.shape.rank(); ++i) add(spec.shape[i]);
  }

 private:
  uint64_t state_;
};

void add_values(Hash& hash, const Few<ValueId>& ids, const std::vector<Value>& values) {
  hash.add(uint64_t{ids.size()});
  for (const ValueId id : ids) {
    const Value& v = values[static_cast<size_t>(id)];
    hash.add(int64_t{id});
    hash.add(v.spec);
    hash.add(uint64_t{v.parameter != nullptr} << 1 | uint64_t{v.needs_grad});
  }
}

std::string described(const Node& n, const std::vector<Value>& values) {
  const std::string attributes = n.op->attributes();
  std::string words = n.op->name();
  if (!attributes.empty()) words.append(" (").append(attributes).append(")");
  for (size_t i = 0; i < std::min<size_t>(n.outputs.size(), 1); ++i) {
    words += sentence(" ", values[static_cast<size_t>(n.outputs[i])].spec);
  }
  return words;
}

// Of all the values that a plan speaks of.
size_t values_of(const Plan& plan) {
  const size_t last = plan.offloads.empty() ? 0 : size_t(plan.offloads.back().value) + 1;
  return std::max(plan.placement.size(), last);
}

constexpr const char* remedy =
    " (layers, batch, sequence, type or options of the model); make a plan for this one";

}  // namespace

uint64_t fingerprint_of_scope(uint64_t around, const ScopeOptions& options, NodeId first) {
  Hash hash(around);
  hash.add(std::string_view(options.name));
  hash.add(int64_t{first});
  hash.add(uint64_t{options.recompute} << 2 | uint64_t{options.offload_inputs} << 1 |
           uint64_t{options.offload_inside});
  return hash.state();
}

uint64_t fingerprint_after(uint64_t before, const Node& n, const std::vector<Value>& values) {
  Hash hash(before);
  hash.add(std::string_view(n.op->name()));
  hash.add(std::string_view(n.op->attributes()));
  add_values(hash, n.inputs, values);
  add_values(hash, n.outputs, values);
  if (n.scopes_hash) hash.add(n.scopes_hash);
  return hash.state();
}

std::vector<uint64_t> fingerprints(const Tape& tape) {
  std::vector<uint64_t> all;
  uint64_t last = fingerprint_of_nothing;
  for (const Node& n : tape.nodes()) {
    last = fingerprint_after(last, n, tape.values());
    all.push_back(last);
  }
  return all;
}

void check_fingerprint(const Plan& plan, const Node& n, NodeId id,
                       const std::vector<Value>& values) {
  const auto& expected = plan.fingerprints;
  if (expected.empty()) return;
  const auto i = static_cast<size_t>(id);
  const auto refuse = [&](const auto&... why) {
    throw Error(ErrorKind::invalid,
                sentence("plan: node ", id, " is ", described(n, values), ", and ", why..., remedy),
                {.needed = 0, .capacity = 0, .op = n.op->name(), .file = {}});
  };
  if (i >= expected.size()) {
    refuse("the plan was made for a tape that ends before it, after ", expected.size(), " nodes");
  }
  const uint64_t before = i == 0 ? fingerprint_of_nothing : expected[i - 1];
  if (fingerprint_after(before, n, values) != expected[i]) {
    refuse("the plan was made for a tape that differs from there on");
  }
  if (i + 1 == expected.size() && values_of(plan) > values.size()) {
    refuse("is the last, with ", values.size(), " values, and the plan places ", values_of(plan));
  }
}

void check_complete(const Plan& plan, const Tape& tape) {
  const size_t expected = plan.fingerprints.size(), is = tape.nodes().size();
  check(expected == 0 || is == expected, "plan: it was made for a tape of ", expected,
        " nodes, and this one has ", is, remedy);
}

}  // namespace spool
