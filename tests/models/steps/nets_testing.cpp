#include "tests/models/steps/nets_testing.h"

#include <cmath>

#include "spool/autograd/ops.h"
#include "spool/runtime/random.h"

namespace spool::testing {
namespace {

// Sets the numbers of a tensor of any floating type.
void set(const Tensor& t, const std::vector<float>& numbers) {
  if (t.stream().device().type == DeviceType::meta) return;
  if (t.dtype() == DType::f64) {
    write<double>(t, std::vector<double>(numbers.begin(), numbers.end()));
  } else if (t.dtype() == DType::f32) {
    write<float>(t, numbers);
  } else {
    write<bf16>(t, std::vector<bf16>(numbers.begin(), numbers.end()));
  }
}

// Mixes the patches of a picture, then the channels of a patch (Tolstikhin et al. 2021), and takes
// the mean over the patches.
class Classifier final : public SmallNet {
 public:
  static constexpr int64_t B = 4, P = 6, K = 5, C = 8, classes = 3, layers = 2;

  Classifier(DType dtype, Stream& stream)
      : SmallNet(dtype, stream),
        pictures_(input({Shape{B, P, K}, dtype})),
        labels_(input({Shape{B}, DType::i32})) {
    add_parameter("in", {C, K});
    for (int64_t l = 0; l < layers; ++l) {
      const std::string prefix = std::to_string(l) + ".";
      for (const char* name : {"patches_up", "patches_down"}) add_parameter(prefix + name, {P, P});
      add_parameter(prefix + "gain", {C});
      add_parameter(prefix + "up", {2 * C, C});
      add_parameter(prefix + "bias", {2 * C});
      add_parameter(prefix + "down", {C, 2 * C});
    }
    add_parameter("temperature", {1});
    add_parameter("out", {classes, C});
  }

  Var loss(Tape& tape) override {
    Var x = tanh(linear(tape.input(pictures_), parameter("in")));
    for (int64_t l = 0; l < layers; ++l) {
      const Tape::Scope scope(tape, {.name = "block"});
      const std::string prefix = std::to_string(l) + ".";
      Var h = transpose(mul(x, parameter(prefix + "gain")), 1, 2);  // (B, C, P)
      h = matmul(relu(matmul(h, parameter(prefix + "patches_up"))),
                 parameter(prefix + "patches_down"), {.b = true});
      x = add(x, transpose(h, 1, 2));
      h = silu(linear(x, parameter(prefix + "up"), parameter(prefix + "bias")));
      x = sub(x, linear(h, parameter(prefix + "down")));
    }
    x = mean(transpose(x, 1, 2), Over::last);  // (B, C)
    // A learned temperature, exp of a parameter.
    x = mul(x, exp(tape.input(parameter("temperature"))));
    return cross_entropy(linear(x, parameter("out")), tape.input(labels_));
  }

  void upload(int64_t micro) override {
    draw(pictures_, micro);
    draw(labels_, classes, micro);
  }

 private:
  Parameter& parameter(const std::string& name) { return parameters_.named(name); }

  Tensor pictures_, labels_;
};

// RMSNorm, rotary positions, attention with shared keys, SwiGLU (Touvron et al. 2023).
class Llama final : public SmallNet {
 public:
  static constexpr int64_t B = 2, T = 6, H = 4, Hkv = 2, D = 4, C = H * D, F = 24, V = 11,
                           layers = 2;

  Llama(DType dtype, Stream& stream)
      : SmallNet(dtype, stream),
        tokens_(input({Shape{B, T}, DType::i32})),
        targets_(input({Shape{B, T}, DType::i32})),
        epsilon_(input({Shape{1}, dtype})),
        cosines_(input({Shape{T * D / 2}, dtype})),
        sines_(input({Shape{T * D / 2}, dtype})) {
    add_parameter("embedding", {V, C});
    for (int64_t l = 0; l < layers; ++l) {
      const std::string prefix = std::to_string(l) + ".";
      const auto layer = [&](const char* name, const Shape& shape) {
        add_parameter(prefix + name, shape);
      };
      layer("norm_1", {C});
      layer("queries", {C, C});
      layer("keys", {Hkv * D, C});
      layer("values", {Hkv * D, C});
      layer("projection", {C, C});
      layer("norm_2", {C});
      layer("gate", {F, C});
      layer("up", {F, C});
      layer("down", {C, F});
    }
    add_parameter("norm", {C});
    set_constants();
  }

  Var loss(Tape& tape) override {
    Var x = embedding(tape.input(tokens_), parameters_.named("embedding"));
    for (int64_t l = 0; l < layers; ++l) x = block(x, std::to_string(l) + ".");
    x = rms_norm(x, parameters_.named("norm"));
    return linear_cross_entropy(x, parameters_.named("embedding"), tape.input(targets_));
  }

  void upload(int64_t micro) override {
    draw(tokens_, V, micro);
    draw(targets_, V, micro + 100);
  }

 private:
  Var block(const Var& in, const std::string& prefix) {
    const Tape::Scope scope(in.tape(), {.name = "block"});
    const auto weight = [&](const char* name) -> Parameter& {
      return parameters_.named(prefix + name);
    };
    Var h = rms_norm(in, weight("norm_1"));
    const Var q = rotated(linear(h, weight("queries")), H);
    const Var k = rotated(linear(h, weight("keys")), Hkv);
    const Var v = linear(h, weight("values"));
    h = attention(concat({q, k, v}, -1), {.query = H, .key = Hkv});
    const Var x = add(in, linear(h, weight("projection")));
    h = rms_norm(x, weight("norm_2"));
    h = mul(silu(linear(h, weight("gate"))), linear(h, weight("up")));
    return add(x, linear(h, weight("down")));
  }

  // x / sqrt(mean x^2 + epsilon) times the weight.
  Var rms_norm(const Var& x, Parameter& weight) {
    const Var squares = reshape(mean(square(x), Over::last), {B, T, 1});
    const Var logs = log(add(squares, x.tape().input(epsilon_)));
    return mul(mul(x, exp(scale(logs, -0.5))), weight);
  }

  // Rotates the pairs (d, d + D/2) of each head by the token's angles.
  Var rotated(const Var& x, int64_t heads) {
    const Var by_head = permute(reshape(x, {B, T, heads, D}), {0, 2, 1, 3});
    const auto half = [&](int64_t from) {
      return reshape(slice(by_head, -1, {from, from + D / 2}), {B * heads, T * D / 2});
    };
    const Var a = half(0), b = half(D / 2);
    const Var cosines = x.tape().input(cosines_), sines = x.tape().input(sines_);
    const Shape shape{B, heads, T, D / 2};
    const Var left = reshape(sub(mul(a, cosines), mul(b, sines)), shape);
    const Var right = reshape(add(mul(b, cosines), mul(a, sines)), shape);
    return reshape(permute(concat({left, right}, -1), {0, 2, 1, 3}), {B, T, heads * D});
  }

  void set_constants() {
    std::vector<float> cosines, sines;
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t d = 0; d < D / 2; ++d) {
        const double angle =
            static_cast<double>(t) * std::pow(1e4, -2.0 * static_cast<double>(d) / D);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    set(cosines_, cosines);
    set(sines_, sines);
    set(epsilon_, {1e-3f});
  }

  Tensor tokens_, targets_, epsilon_, cosines_, sines_;
};

// Two experts whose results each row weighs (Jacobs et al. 1991), and a squared error.
class Experts final : public SmallNet {
 public:
  static constexpr int64_t N = 10, K = 4, C = 6, F = 12, layers = 2;

  Experts(DType dtype, Stream& stream)
      : SmallNet(dtype, stream), x_(input({Shape{N, K}, dtype})), y_(input({Shape{N, C}, dtype})) {
    add_parameter("in", {C, K});
    for (int64_t l = 0; l < layers; ++l) {
      const std::string prefix = std::to_string(l) + ".";
      add_parameter(prefix + "gate", {2, C});
      for (const char* expert : {"0", "1"}) {
        add_parameter(prefix + "up_" + expert, {F, C});
        add_parameter(prefix + "down_" + expert, {C, F});
      }
    }
  }

  Var loss(Tape& tape) override {
    Var x = linear(tape.input(x_), parameters_.named("in"));
    for (int64_t l = 0; l < layers; ++l) {
      const Tape::Scope scope(tape, {.name = "block"});
      const std::string prefix = std::to_string(l) + ".";
      const Var gates = softmax(linear(x, parameters_.named(prefix + "gate")));
      std::vector<Operand> all;
      const std::array<Var, 2> experts{expert(x, prefix, "0"), expert(x, prefix, "1")};
      // (2, N, C) times one number per expert and row
      const Var weights = reshape(transpose(gates, 0, 1), {2 * N, 1});
      const Var weighed = mul(concat({experts[0], experts[1]}, 0), weights);
      x = add(x, sum(permute(reshape(weighed, {2, N, C}), {1, 2, 0}), Over::last));
    }
    return mse(sigmoid(x), tape.input(y_));
  }

  void upload(int64_t micro) override {
    draw(x_, micro);
    draw(y_, micro + 100);
  }

 private:
  Var expert(const Var& x, const std::string& prefix, const std::string& which) {
    const Var h = linear(x, parameters_.named(prefix + "up_" + which));
    return linear(mul(h, sigmoid(h)), parameters_.named(prefix + "down_" + which));
  }

  Tensor x_, y_;
};

}  // namespace

Tensor SmallNet::input(const Spec& spec) {
  return {spec, parameters_.stream(), {.name = "input", .purpose = Purpose::input}};
}

void SmallNet::initialise(uint64_t seed) {
  for (const Parameter* p : parameters_) {
    Random random(++seed);
    std::vector<float> numbers(static_cast<size_t>(p->data.numel()));
    for (float& x : numbers) x = 0.3f * random.normal();
    set(p->data, numbers);
  }
}

void SmallNet::draw(const Tensor& ids, int32_t below, int64_t micro) {
  Random random(static_cast<uint64_t>(micro) + 1);
  std::vector<int32_t> drawn(static_cast<size_t>(ids.numel()));
  for (int32_t& id : drawn) {
    id = static_cast<int32_t>(random.next() % static_cast<uint32_t>(below));
  }
  write<int32_t>(ids, drawn);
}

void SmallNet::draw(const Tensor& numbers, int64_t micro) {
  Random random(static_cast<uint64_t>(micro) + 1);
  std::vector<float> drawn(static_cast<size_t>(numbers.numel()));
  for (float& x : drawn) x = random.normal();
  set(numbers, drawn);
}

std::unique_ptr<SmallNet> make_net(NetKind kind, DType dtype, Stream& stream) {
  switch (kind) {
    case NetKind::classifier:
      return std::make_unique<Classifier>(dtype, stream);
    case NetKind::llama:
      return std::make_unique<Llama>(dtype, stream);
    default:
      return std::make_unique<Experts>(dtype, stream);
  }
}

}  // namespace spool::testing
