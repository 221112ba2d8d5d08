#include "spool/planner/sharding/described_op.h"

#include <algorithm>
#include <deque>
#include <span>

#include "spool/autograd/ops/rows.h"
#include "spool/planner/rehearsal.h"

namespace spool {
namespace {

// The operands of an op on a tape, in its order, with their names.
class NamedOperands {
 public:
  NamedOperands(Tape& tape, DType dtype) : tape_(tape), dtype_(dtype) {}

  Var value(const char* name, const Shape& shape) {
    return input({name, name}, {shape, dtype_}, /*needs_grad=*/true);
  }
  Var constant(OperandName name, const Spec& spec) {
    return input(std::move(name), spec, /*needs_grad=*/false);
  }
  Parameter& parameter(OperandName name, const Shape& shape) {
    names.push_back(std::move(name));
    Parameter& p = parameters_.emplace_back();
    p.data = Tensor({shape, dtype_}, tape_.stream());
    return p;
  }
  DType dtype() const { return dtype_; }

  std::vector<OperandName> names = {};

 private:
  Var input(OperandName name, const Spec& spec, bool needs_grad) {
    names.push_back(std::move(name));
    return tape_.input(Tensor(spec, tape_.stream()), needs_grad);
  }

  Tape& tape_;
  DType dtype_;
  std::deque<Parameter> parameters_ = {};  // at addresses that do not change
};

const OperandName weight_name{"weight", "w"}, bias_name{"bias", "b"};

Shape row_of(const OpDescription& d) { return {d.shape.row()}; }

// Elements of a head of packed q, k and v; 0 if they do not divide, which the op says.
int64_t head_size(const OpDescription& d) {
  return d.shape.row() / (d.heads->query + 2 * d.heads->key);
}

void apply_linear(NamedOperands& all, const OpDescription& d) {
  const Var x = all.value("x", d.shape);
  Parameter& weight = all.parameter(weight_name, {*d.out, d.shape.row()});
  if (d.no_bias) {
    linear(x, weight);
  } else {
    linear(x, weight, all.parameter(bias_name, {*d.out}));
  }
}

void apply_matmul(NamedOperands& all, const OpDescription& d) {
  const Transposed t = d.transposed.value_or(Transposed{});
  const Var a = all.value("a", d.shape);
  check(d.shape.rank() >= 2, "matmul: ", a.spec(), " is no matrix, which has 2 dimensions or more");
  const int64_t K = d.shape[t.a ? -2 : -1];
  const Shape one = t.b ? Shape{*d.out, K} : Shape{K, *d.out};
  matmul(a, all.value("b", d.shared ? one : d.shape.with(-2, one[0]).with(-1, one[1])), t);
}

void apply_attention(NamedOperands& all, const OpDescription& d) {
  attention(all.value("qkv", d.shape), *d.heads);
}

void apply_rope(NamedOperands& all, const OpDescription& d) {
  const Var qkv = all.value("qkv", d.shape);
  const int64_t rows = d.shape.rank() > 1 ? d.shape[1] : 0;
  rope(qkv, all.constant({"table", "table"}, {{rows, head_size(d)}, accumulator(all.dtype())}),
       *d.heads);
}

void apply_head_norm(NamedOperands& all, const OpDescription& d) {
  const Var qkv = all.value("qkv", d.shape);
  Parameter& query = all.parameter({"weight of queries", "wq"}, {head_size(d)});
  head_norm(qkv, query, all.parameter({"weight of keys", "wk"}, {head_size(d)}), *d.heads);
}

void apply_embedding(NamedOperands& all, const OpDescription& d) {
  const Var tokens = all.constant({"tokens", "t"}, {d.shape, DType::i32});
  Parameter& weight = all.parameter(weight_name, {*d.vocab, *d.channels});
  if (d.positions) {
    embedding(tokens, weight, all.parameter({"positions", "p"}, {*d.positions, *d.channels}));
  } else {
    embedding(tokens, weight);
  }
}

void apply_loss(NamedOperands& all, const OpDescription& d) {
  const Var x = all.value("x", d.shape);
  Parameter& weight = all.parameter(weight_name, {*d.vocab, d.shape.row()});
  const Var targets = all.constant({"targets", "t"}, {without_rows(d.shape), DType::i32});
  linear_cross_entropy(x, weight, targets,
                       {.options = {.label_smoothing = d.label_smoothing.value_or(0)}});
}

void apply_layer_norm(NamedOperands& all, const OpDescription& d) {
  const Var x = all.value("x", d.shape);
  Parameter& weight = all.parameter(weight_name, row_of(d));
  layer_norm(x, weight, all.parameter(bias_name, row_of(d)));
}

void apply_rms_norm(NamedOperands& all, const OpDescription& d) {
  const Var x = all.value("x", d.shape);
  rms_norm(x, all.parameter(weight_name, row_of(d)));
}

void apply_softmax(NamedOperands& all, const OpDescription& d) { softmax(all.value("x", d.shape)); }
void apply_swiglu(NamedOperands& all, const OpDescription& d) { swiglu(all.value("x", d.shape)); }
void apply_gelu(NamedOperands& all, const OpDescription& d) { gelu(all.value("x", d.shape)); }

using Keys = std::vector<const char*>;  // of settings

// An op, the numbers that it needs beside the shape, and those that it may have.
struct KnownOp {
  const char* name;
  Keys needs, takes;
  void (*apply)(NamedOperands&, const OpDescription&);
};

const std::vector<KnownOp>& known_ops() {
  static const std::vector<KnownOp> ops{
      {"linear", {"out"}, {"no-bias"}, apply_linear},
      {"matmul", {"out"}, {"transposed", "shared"}, apply_matmul},
      {"attention", {"heads"}, {}, apply_attention},
      {"embedding", {"vocab", "channels"}, {"positions"}, apply_embedding},
      {"loss", {"vocab"}, {"label-smoothing"}, apply_loss},
      {"layer_norm", {}, {}, apply_layer_norm},
      {"rms_norm", {}, {}, apply_rms_norm},
      {"head_norm", {"heads"}, {}, apply_head_norm},
      {"rope", {"heads"}, {}, apply_rope},
      {"swiglu", {}, {}, apply_swiglu},
      {"gelu", {}, {}, apply_gelu},
      {"softmax", {}, {}, apply_softmax},
  };
  return ops;
}

Keys given_keys(const OpDescription& d) {
  const std::pair<const char*, bool> all[] = {{"out", d.out.has_value()},
                                              {"vocab", d.vocab.has_value()},
                                              {"channels", d.channels.has_value()},
                                              {"positions", d.positions.has_value()},
                                              {"heads", d.heads.has_value()},
                                              {"transposed", d.transposed.has_value()},
                                              {"label-smoothing", d.label_smoothing.has_value()},
                                              {"no-bias", d.no_bias},
                                              {"shared", d.shared}};
  Keys keys;
  for (const auto& [key, is_given] : all) {
    if (is_given) keys.push_back(key);
  }
  return keys;
}

bool has(const Keys& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

std::string list_of_keys(const Keys& keys) {
  std::string list;
  for (size_t i = 0; i < keys.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == keys.size() ? " and " : ", ") + std::string(keys[i]);
  }
  return list;
}

const KnownOp& known_op(const OpDescription& d) {
  const auto op = std::ranges::find(known_ops(), d.op, &KnownOp::name);
  std::string list;
  for (const std::string& name : described_ops()) list += (list.empty() ? "" : ", ") + name;
  check_setting(op != known_ops().end(), {"op"}, "there is no op '", d.op, "'; there are ", list);
  return *op;
}

void check_given(const KnownOp& op, const OpDescription& d) {
  const Keys given = given_keys(d);
  for (const char* key : op.needs) {
    check_setting(has(given, key), {key}, op.name, " needs ", list_of_keys(op.needs),
                  " beside the shape of its first operand, and ", key, " is missing");
  }
  Keys all = op.needs;
  all.insert(all.end(), op.takes.begin(), op.takes.end());
  for (const char* key : given) {
    check_setting(has(all, key), {key}, op.name, " has no ", key, "; ",
                  all.empty() ? "beside its shape it takes nothing"
                              : "beside its shape it takes " + list_of_keys(all));
  }
}

void check_numbers(const OpDescription& d) {
  check_setting(d.shape.rank() > 0, {"shape"}, "the shape has no extents; a shape is 4,4,16");
  for (int i = 0; i < d.shape.rank(); ++i) {
    check_setting(d.shape[i] > 0, {"shape"}, "the shape ", d.shape,
                  " has no elements; each of its extents is 1 or more");
  }
  const auto positive = [](const char* key, const std::optional<int64_t>& n) {
    check_setting(!n || *n > 0, {key}, key, " is ", n.value_or(0), ", and must be 1 or more");
  };
  positive("out", d.out);
  positive("vocab", d.vocab);
  positive("channels", d.channels);
  positive("positions", d.positions);
  const float smoothing = d.label_smoothing.value_or(0);
  check_setting(0 <= smoothing && smoothing < 1, {"label-smoothing"}, "label smoothing is ",
                smoothing, ", and must be from 0 to less than 1");
}

}  // namespace

std::vector<std::string> described_ops() {
  std::vector<std::string> names;
  for (const KnownOp& op : known_ops()) names.emplace_back(op.name);
  return names;
}

DescribedOp describe_op(const OpDescription& d) {
  const KnownOp& op = known_op(d);
  check_given(op, d);
  check_numbers(d);
  DescribedOp described;
  const auto record = [&](MetaStream& stream) {
    const Tensor scale({Shape{1}, accumulator(d.dtype)}, stream);
    Tape tape(stream, {.backward_follows = true, .loss_scale = scale});
    NamedOperands operands(tape, d.dtype);
    op.apply(operands, d);
    described = {.program = tape.take_program(), .inputs = std::move(operands.names)};
    if (d.heads) described.counted['h'] = d.heads->key == d.heads->query ? "heads" : "key heads";
  };
  try {
    rehearse_totals(Machine{}, record);
  } catch (const Error& e) {
    ErrorFields fields = e.fields();
    fields.settings = {"shape"};
    for (const char* key : given_keys(d)) fields.settings.emplace_back(key);
    throw Error(e.kind(), e.what(), std::move(fields));
  }
  return described;
}

}  // namespace spool
