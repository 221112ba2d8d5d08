// Checks that an op's index notation is true, forward and backward.

#include <map>

#include "spool/autograd/checks/op_check.h"

namespace spool::op_checks {
namespace {

const std::string notation = "notation";

// Checks that each term fits its tensor, and that an index has the same extent everywhere.
void check_extents(Findings& findings, const AppliedOp& applied) {
  std::map<char, int64_t> seen;
  const auto see = [&](const std::string& term, const Shape& shape) {
    const std::vector<int64_t> each = extents(term, shape);
    for (size_t i = 0; i < each.size(); ++i) {
      const int64_t before = seen.emplace(term[i], each[i]).first->second;
      if (before == each[i]) continue;
      findings.add(notation, sentence("the index ", term[i], " is ", before, " long, and in '",
                                      term, "' ", shape, " ", each[i]));
    }
  };
  const std::vector<Spec> out = applied.output_specs();
  if (applied.notation.outputs.size() > out.size()) {
    findings.add(notation, sentence("it has ", applied.notation.outputs.size(),
                                    " outputs, and the op ", out.size()));
  }
  for (size_t i = 0; i < applied.inputs.size(); ++i) {
    see(applied.term_of_input(i), applied.inputs[i].spec.shape);
  }
  for (size_t i = 0; i < out.size(); ++i) see(applied.term_of_output(i), out[i].shape);
}

void check_chunks(Findings& findings, const AppliedOp& applied, Chunking how) {
  for (const DType type : findings.types()) {
    const AppliedOp typed = in_type(applied, type);
    const double max = findings.tolerance(type).chunks;
    for (const int64_t chunks : {2, 3, 100}) {
      how.chunks = chunks;
      const auto add = [&](const char* what, double apart) {
        if (apart < max) return;
        findings.add(notation, sentence(chunks, " chunks along ", how.index, " do not make up the ",
                                        "whole: ", what, " are ", apart, " of the tensor's largest",
                                        " number apart, and ", max, " is the most (", name(type),
                                        "); a capital index is not cut"));
      };
      const auto [outputs, gradients] = difference_of_chunks(typed, how);
      add("outputs", outputs);
      add("gradients", gradients);
      if (!(outputs < max && gradients < max)) return;
    }
  }
}

void check_chunks(Findings& findings, const AppliedOp& applied) {
  const auto along = [&](char index, ChunkForm form) {
    if (carries(findings.sample.not_cut, index)) return;
    findings.attempt(sentence("chunks along ", index), [&] {
      check_chunks(findings, applied, {index, 1, form});
    });
  };
  for (const char index : leading_indices(applied.notation)) {
    along(index, ChunkForm::slices);
    along(index, ChunkForm::rows);
  }
  for (const char index : other_separable_indices(applied.notation)) {
    along(index, ChunkForm::slices);
  }
}

void check_influences(Findings& findings, const AppliedOp& applied) {
  for (const DType type : findings.types()) {
    const Influences found = find_influences(in_type(applied, type));
    findings.add(notation, found.forbidden);
    for (size_t i = 0; i < found.matters.size(); ++i) {
      if (found.matters[i]) continue;
      findings.add(notation, sentence("no output changes with input ", i, " (", name(type), ")"));
    }
  }
}

// Whether the op launches more in forward if backward is promised: it computes gradients there.
bool computes_gradients_in_forward(const Findings& findings) {
  const auto launches = [&](bool backward_follows) {
    const auto stream = findings.open();
    SampleRun run(
        findings.sample, *stream,
        {.dtype = findings.types().front(), .tape = {.backward_follows = backward_follows}});
    const uint64_t before = stream->launches();
    run.forward();
    return stream->launches() - before;
  };
  return launches(true) != launches(false);
}

}  // namespace

void check_notation(Findings& findings, const AppliedOp& applied) {
  findings.attempt(notation, [&] { check_extents(findings, applied); });
  check_chunks(findings, applied);
  findings.attempt(notation, [&] { check_influences(findings, applied); });
}

void check_notation(Findings& findings) {
  findings.attempt(notation, [&] {
    check_notation(findings, applied_op(findings.sample));
    if (!computes_gradients_in_forward(findings)) return;
    check_notation(findings, applied_op(findings.sample, /*backward_follows=*/true));
  });
}

}  // namespace spool::op_checks
