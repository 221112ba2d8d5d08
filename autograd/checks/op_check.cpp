#include "spool/autograd/checks/op_check.h"

#include <algorithm>

#include "spool/autograd/checks/comparison.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/trace.h"

namespace spool::op_checks {
namespace {

std::string in(DType type) { return sentence(" (", name(type), ")"); }

bool has_gradient(const SampleInput& input) { return input.has_gradient(); }

// "" or the text with the type behind it.
std::string with_type(const std::string& text, DType type) {
  return text.empty() ? text : text + in(type);
}

}  // namespace

std::vector<DType> Findings::types() const {
  std::vector<DType> all = sample.types;
  if (device.type != DeviceType::cpu) std::erase(all, DType::f64);
  return all;
}

const OpTolerance& Findings::tolerance(DType type) const {
  if (type == DType::f64) return sample.f64;
  return type == DType::f32 ? sample.f32 : sample.bf16;
}

std::unique_ptr<Stream> Findings::open(int threads, size_t bytes) const {
  return open_stream(device, bytes, threads);
}

SampleValues Findings::run(const SampleOptions& options, int threads) const {
  return run_sample(sample, *open(threads), options);
}

void Findings::add(const std::string& check, const std::string& text) {
  if (!text.empty()) all_.push_back(sentence(sample.name, ", ", check, ": ", text));
}

void Findings::attempt(const std::string& check, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    add(check, e.what());
  }
}

void check_runs(Findings& findings) {
  for (const DType type : findings.types()) {
    const std::string check = sentence("a run in ", name(type));
    findings.attempt(check, [&] {
      const SampleValues first = findings.run({.dtype = type});
      const std::string text = different_bits(findings.run({.dtype = type}), first);
      if (!text.empty()) findings.add(check, "the same run again has other bits: " + text);
    });
  }
}

namespace {

// The first kernel of a rehearsal that has no cost, or null.
const char* kernel_without_cost(Trace& trace) {
  for (const TraceSpan& span : trace.spans()) {
    const bool is_kernel = span.activity == Activity::kernel;
    if (is_kernel && span.cost.flops == 0 && span.cost.bytes == 0) return span.name;
  }
  return nullptr;
}

// The peak of the work on the meta device, with the architecture of the device that is checked.
size_t foretell(Findings& findings, int threads, const std::function<void(Stream&)>& work) {
  MetaStream meta(Machine{.architecture = findings.open(threads, Arena::granule)->architecture()});
  const auto trace = std::make_shared<Trace>();
  const Traced traced(meta, trace);
  work(meta);
  if (const char* const kernel = kernel_without_cost(*trace)) {
    findings.add("memory", sentence("the cost() of ", kernel, " has neither flops nor bytes, so ",
                                    "rehearsals cannot tell its time"));
  }
  return meta.memory().peak;
}

void check_memory(Findings& findings, DType type) {
  const auto work = [&](Stream& stream) {
    SampleRun run(findings.sample, stream, {.dtype = type});
    run.forward();
    run.backward();
  };
  constexpr int threads = 2;
  const auto add = [&](const auto&... parts) {
    findings.add("memory", sentence(parts...) + in(type));
  };
  const size_t foretold = foretell(findings, threads, work);
  const auto stream = findings.open(threads, foretold);
  try {
    work(*stream);
    stream->synchronize();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::memory) throw;
    return add("an arena of the peak that a rehearsal foretells, ", foretold,
               " bytes, does not suffice: ", e.what());
  }
  const MemoryStats& stats = stream->memory();
  if (stats.peak != foretold) {
    add("a rehearsal foretells a peak of ", foretold, " bytes, and the run's is ", stats.peak);
  }
  if (stats.live) add(stats.live, " bytes are live when the tape is gone");
}

struct SavedRun {
  std::vector<Numbers> gradients;
  int runs = 0;  // of the op
  bool recomputable = true;
  size_t nodes = 0, values = 0;  // of the tape
};

// Runs the sample with a gelu behind the op, which saves the op's outputs.
SavedRun run_saving(const Findings& findings, DType type, const TapeOptions& tape, Stream& stream) {
  SampleRun run(findings.sample, stream, {.dtype = type, .tape = tape, .through_gelu = true});
  run.forward();
  SavedRun done;
  done.nodes = run.tape().nodes().size();
  done.values = run.tape().values().size();
  if (done.nodes) done.recomputable = run.tape().nodes()[0].op->recomputable();
  run.backward();
  done.gradients = run.gradients();
  if (done.nodes) done.runs = run.tape().nodes()[0].runs;
  return done;
}

Plan recompute_all(const SavedRun& tape) {
  return {.placement = std::vector(tape.values, Placement::recompute)};
}

// Offloads all values, which are released before backward begins.
Plan offload_all(const SavedRun& tape) {
  Plan plan{.placement = std::vector(tape.values, Placement::offload)};
  for (size_t v = 0; v < tape.values; ++v) {
    plan.offloads.push_back(
        {.value = static_cast<ValueId>(v), .release = static_cast<NodeId>(tape.nodes)});
  }
  return plan;
}

}  // namespace

void check_memory(Findings& findings) {
  for (const DType type : findings.types()) {
    findings.attempt("memory", [&] { check_memory(findings, type); });
  }
}

void check_recomputing(Findings& findings) {
  const std::string check = "recomputing";
  for (const DType type : findings.types()) {
    findings.attempt(check, [&] {
      const auto stream = findings.open(/*threads=*/2);
      const SavedRun kept = run_saving(findings, type, {}, *stream);
      if (!kept.recomputable) return;
      const SavedRun again = run_saving(findings, type, {.plan = recompute_all(kept)}, *stream);
      const std::string text = different_bits({{}, again.gradients}, {{}, kept.gradients});
      if (!text.empty()) findings.add(check, "it changes gradients: " + with_type(text, type));
      if (again.runs <= kept.runs) findings.add(check, "nothing runs again" + in(type));
    });
  }
}

void check_offloading(Findings& findings) {
  const std::string check = "offloading";
  for (const DType type : findings.types()) {
    findings.attempt(check, [&] {
      const auto stream = findings.open(/*threads=*/2);
      const SavedRun kept = run_saving(findings, type, {}, *stream);
      HostLink link(*stream, plenty);
      Offloader offloader(link);
      const SavedRun offloaded =
          run_saving(findings, type, {.plan = offload_all(kept), .offloader = &offloader}, *stream);
      const std::string text = different_bits({{}, offloaded.gradients}, {{}, kept.gradients});
      if (!text.empty()) findings.add(check, "it changes gradients: " + with_type(text, type));
      if (offloader.returned().tensors == 0) findings.add(check, "nothing is copied" + in(type));
    });
  }
}

void check_absent_gradients(Findings& findings) {
  const std::vector<SampleInput>& inputs = findings.sample.inputs;
  if (std::ranges::count_if(inputs, has_gradient) == 1) return;
  std::vector<DType> types = findings.types();
  if (types.size() > 2) types = {types.front(), types.back()};
  for (const DType type : types) {
    const SampleValues all = findings.run({.dtype = type});
    for (size_t without = 0; without < inputs.size(); ++without) {
      if (!has_gradient(inputs[without])) continue;
      const std::string check = sentence("without ", gradient_of(without));
      findings.attempt(check, [&] {
        SampleValues wanted = all;
        wanted.gradients[without].clear();
        const SampleOptions options{.dtype = type, .without_gradient = static_cast<int>(without)};
        findings.add(check, with_type(different_bits(findings.run(options), wanted), type));
      });
    }
  }
}

void check_threads(Findings& findings) {
  std::vector<DType> types = findings.types();
  if (types.size() > 1) std::erase(types, DType::f64);
  const bool has_large = std::ranges::any_of(
      findings.sample.inputs, [](const SampleInput& input) { return input.large.rank() > 0; });
  for (const bool large : {false, true}) {
    if (large && !has_large) continue;
    for (const DType type : types) {
      findings.attempt("threads", [&] {
        const SampleOptions options{.dtype = type, .large = large};
        const SampleValues one = findings.run(options, 1);
        for (const int threads : {2, 5}) {
          const std::string text = different_bits(findings.run(options, threads), one);
          if (text.empty()) continue;
          findings.add("threads", sentence(threads, " threads do not compute what one does: ", text,
                                           in(type)));
        }
      });
    }
  }
}

void check_narrow_types(Findings& findings) {
  const std::vector<DType> types = findings.types();
  const SampleValues exact = findings.run({.dtype = types.front()});
  const std::string by = sentence("in ", name(types.front()));
  for (const DType type : types) {
    if (type == types.front()) continue;
    const std::string check = sentence("precision of ", name(type));
    findings.attempt(check, [&] {
      const OpTolerance& max = findings.tolerance(type);
      const SampleValues found = findings.run({.dtype = type});
      findings.add(check, too_far_output(by, found, exact, max.outputs));
      findings.add(check, too_far_gradient(by, found, exact, max.gradients));
    });
  }
}

void check_own_chunks(Findings& findings) {
  const DType type = findings.types().front();
  const double max = findings.tolerance(type).chunks;
  for (int chunks = 2; chunks <= findings.sample.chunks; ++chunks) {
    const std::string check = sentence(chunks, " chunks of its own");
    findings.attempt(check, [&] {
      SampleOptions options{.dtype = type};
      const SampleValues whole = findings.run(options);
      options.tape.plan.chunks.assign(8, chunks);
      const SampleValues cut = findings.run(options);
      findings.add(check, with_type(too_far_output("in one", cut, whole, max), type));
      findings.add(check, with_type(too_far_gradient("in one", cut, whole, max), type));
    });
  }
}

void check_device(Findings& findings) {
  const Findings cpu(findings.sample, {DeviceType::cpu});
  for (const DType type : findings.types()) {
    const double max = findings.tolerance(type).devices;
    for (int chunks = 1; chunks <= findings.sample.chunks; ++chunks) {
      findings.attempt("against the cpu", [&] {
        SampleOptions options{.dtype = type};
        options.tape.plan.chunks.assign(8, chunks);
        const SampleValues wanted = cpu.run(options), found = findings.run(options);
        findings.add("against the cpu",
                     with_type(too_far_output("on the cpu", found, wanted, max / 2), type));
        findings.add("against the cpu",
                     with_type(too_far_gradient("on the cpu", found, wanted, max), type));
      });
    }
  }
}

}  // namespace spool::op_checks
