#include "tests/planner/search/integer_program.h"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <set>

#include "spool/runtime/integer.h"

namespace spool::testing {
namespace {

constexpr int max_seconds = 20;  // of the solver
constexpr double granule = Arena::granule;
constexpr double parts = 1e5;  // unit of the solver's time: the step's seconds over this

std::string exact(double n) {
  std::ostringstream out;
  out << std::setprecision(std::numeric_limits<double>::max_digits10) << n;
  return out.str();
}

// A row of an LP file: a sum of variables.
class Row {
 public:
  Row& add(double factor, const std::string& variable) {
    text_ += sentence(factor < 0 ? "\n - " : "\n + ", exact(std::abs(factor)), ' ', variable);
    return *this;
  }
  std::string at_most(double n) const { return sentence(text_, "\n <= ", exact(n), '\n'); }
  std::string at_least(double n) const { return sentence(text_, "\n >= ", exact(n), '\n'); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class IntegerProgram {
 public:
  IntegerProgram(const SearchedStep& step, size_t bytes, Reads reads)
      : program_(step.rehearse_tape({}).program),
        kept_(step.rehearse({}, std::nullopt, {.survey = true})),
        limit_(static_cast<double>(bytes)),
        reads_(reads),
        forward_(program_.nodes.size()) {
    for (const SurveyedWork& work : kept_.survey.works) {
      if (work.node < 0) continue;
      stages_.push_back(&work);
      if (work.phase == Phase::forward) forward_[work.node] = &work;
    }
    for (size_t t = 0; t < stages_.size(); ++t) add_stage(t);
  }

  double seconds() const { return kept_.report.seconds; }
  bool fits() const { return fits_; }

  void write(const std::filesystem::path& file) const {
    std::ofstream out(file);
    out << "Minimize\n obj: " << objective_.text() << "\nSubject To\n";
    for (size_t i = 0; i < rows_.size(); ++i) out << " c" << i << ":" << rows_[i];
    out << "Binaries\n";
    for (const std::string& b : binaries_) out << ' ' << b << '\n';
    out << "End\n";
  }

 private:
  double bytes_of(ValueId v) const {
    return static_cast<double>(round_up(program_.values[v].spec.nbytes(), Arena::granule));
  }
  NodeId producer(ValueId v) const { return program_.values[v].producer; }
  std::set<ValueId> made(const Few<ValueId>& all) const {
    std::set<ValueId> some;
    for (const ValueId v : all) {
      if (producer(v) >= 0) some.insert(v);
    }
    return some;
  }
  std::set<ValueId> saved_below(NodeId end) const {
    std::set<ValueId> saved;
    for (NodeId n = 0; n < end; ++n) saved.merge(made(program_.nodes[n].saves));
    return saved;
  }
  bool is_read_from(NodeId first, ValueId v) const {
    for (NodeId n = first; n < program_.nodes.next_id(); ++n) {
      if (made(program_.nodes[n].inputs).contains(v)) return true;
    }
    return false;
  }
  bool runs_again(size_t t, NodeId j) const {
    const bool backward = stages_[t]->phase == Phase::backward;
    return backward && j <= stages_[t]->node && program_.nodes[j].op->recomputable();
  }
  std::string binary(std::string name) {
    binaries_.insert(name);
    return name;
  }
  std::string live(size_t t, ValueId v) { return binary(sentence("S_", t, '_', v)); }
  std::string again(size_t t, NodeId j) { return binary(sentence("R_", t, '_', j)); }

  // At least one of these makes the value available to stage t: it is live, or its producer runs.
  Row available(size_t t, ValueId v) {
    Row row;
    if (t > 0) row.add(1, live(t, v));
    if (runs_again(t, producer(v))) row.add(1, again(t, producer(v)));
    return row;
  }

  void add_stage(size_t t) {
    const SurveyedWork& work = *stages_[t];
    const NodeId n = work.node;
    const bool is_forward = work.phase == Phase::forward;
    const auto reads = made(is_forward ? program_.nodes[n].inputs : program_.nodes[n].saves);
    for (const ValueId v : reads) rows_.push_back(available(t, v).at_least(1));
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      if (producer(v) < 0 || producer(v) > n || (is_forward && producer(v) == n)) continue;
      Row kept;  // S[t+1,v] <= S[t,v] + R[t,producer]
      kept.add(1, live(t + 1, v));
      if (t > 0) kept.add(-1, live(t, v));
      if (runs_again(t, producer(v))) kept.add(-1, again(t, producer(v)));
      rows_.push_back(kept.at_most(0));
    }
    add_memory(t, reads);
    for (NodeId j = 0; j <= n; ++j) {
      if (runs_again(t, j)) add_recomputation(t, j, reads);
    }
  }

  // The memory while the node itself runs.
  void add_memory(size_t t, std::set<ValueId> own) {
    const SurveyedWork& work = *stages_[t];
    const bool is_forward = work.phase == Phase::forward;
    own.merge(made(program_.nodes[work.node].saves));
    const std::set<ValueId> saved = saved_below(work.node);
    auto fixed = static_cast<double>(work.live);
    Row row;
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      if (reads_ == Reads::late && !is_forward && own.contains(v)) {
        fixed -= bytes_of(v);
        row.add(bytes_of(v) / granule, live(t, v));
      }
      if (producer(v) < 0 || producer(v) >= work.node || own.contains(v)) continue;
      if (saved.contains(v))
        fixed -= bytes_of(v);
      else if (is_forward && is_read_from(work.node, v))
        continue;  // live in every schedule
      row.add(bytes_of(v) / granule, live(t + 1, v));
    }
    add_limit(row, fixed);
  }

  // The memory while op k runs again in stage t.
  void add_recomputation(size_t t, NodeId k, const std::set<ValueId>& own) {
    const Node& node = program_.nodes[k];
    objective_.add(parts * forward_[k]->seconds / seconds(), again(t, k));
    for (const ValueId v : made(node.inputs)) {
      Row row = available(t, v);
      rows_.push_back(row.add(-1, again(t, k)).at_least(0));
    }
    const SurveyedWork& forward = *forward_[k];
    const auto fixed =
        static_cast<double>(stages_[t]->live_before) - sum(saved_below(stages_[t]->node + 1));
    Row row;
    row.add(static_cast<double>(forward.live - forward.live_before) / granule, again(t, k));
    for (ValueId v = 0; v < program_.values.next_id(); ++v) {
      if (producer(v) < 0 || producer(v) == k || producer(v) > stages_[t]->node) continue;
      const std::string use = sentence("L_", t, '_', k, '_', v);
      std::vector<std::string> exists;
      exists.push_back(live(t, v));
      if (producer(v) < k && runs_again(t, producer(v))) exists.push_back(again(t, producer(v)));
      for (const std::string& e : exists) {
        const auto is_live_if = [&](const std::string& needed) {
          rows_.push_back(Row().add(1, use).add(-1, e).add(-1, needed).at_least(-1));
        };
        if (own.contains(v)) rows_.push_back(Row().add(1, use).add(-1, e).at_least(0));
        is_live_if(live(t + 1, v));
        for (NodeId j = k; j <= stages_[t]->node; ++j) {
          if (runs_again(t, j) && made(program_.nodes[j].inputs).contains(v))
            is_live_if(again(t, j));
        }
      }
      row.add(bytes_of(v) / granule, use);
    }
    add_limit(row, fixed);
  }
  double sum(const std::set<ValueId>& values) const {
    double bytes = 0;
    for (const ValueId v : values) bytes += bytes_of(v);
    return bytes;
  }
  void add_limit(const Row& row, double fixed) {
    if (row.text().empty())
      fits_ &= fixed <= limit_;
    else
      rows_.push_back(row.at_most((limit_ - fixed) / granule));
  }

  Program program_;
  RehearsedStep kept_;
  double limit_;
  Reads reads_;
  IdTable<NodeId, const SurveyedWork*> forward_;
  std::vector<const SurveyedWork*> stages_;
  std::vector<std::string> rows_;
  std::set<std::string> binaries_;
  Row objective_;
  bool fits_ = true;
};

}  // namespace

bool has_integer_solver() { return std::filesystem::exists(SPOOL_CBC); }

std::optional<double> fastest_step(const SearchedStep& step, size_t bytes, Reads reads) {
  const IntegerProgram program(step, bytes, reads);
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (!program.fits()) return infinite;
  std::string folder = (std::filesystem::temp_directory_path() / "spool-XXXXXX").string();
  check(::mkdtemp(folder.data()) != nullptr, "no temporary folder can be made");
  const std::filesystem::path model = folder + "/step.lp", solution = folder + "/solution";
  program.write(model);
  const std::string command =
      sentence(SPOOL_CBC, " ", model, " -timeMode elapsed -seconds ", max_seconds,
               " -solve -solution ", solution, " > ", folder, "/log");
  const int status = std::system(command.c_str());
  std::string word, line;
  std::ifstream in(solution);
  in >> word;
  std::getline(in, line);
  std::filesystem::remove_all(folder);
  check(status == 0 && !word.empty(), "the solver failed: ", command);
  if (word == "Infeasible" || word == "Integer") return infinite;
  if (word != "Optimal") return {};
  return program.seconds() * (1 + std::stod(line.substr(line.rfind(' '))) / parts);
}

}  // namespace spool::testing
