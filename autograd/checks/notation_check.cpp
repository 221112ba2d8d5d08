// Checks that an op's index notation is true, forward and backward.

#include <map>

#include "spool/autograd/checks/op_check.h"

namespace spool::op_checks {
namespace {

const std::string notation = "notation";

// Checks that each term fits its tensor, and that an index has the same extent everywhere.
void check_extents(Findings& findings, const AppliedOp& applied) {
  std::map<char, int64_t> seen;
  const auto see = [&](const Term& term, const Shape& shape) {
    for (const char index : term.indices) {
      const int64_t extent = term.extent(index, shape);
      const int64_t before = seen.emplace(index, extent).first->second;
      if (before == extent) continue;
      findings.add(notation, sentence("the index ", index, " is ", before, " long, and in '",
                                      term.text(), "' ", shape, " ", extent));
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
  for (size_t i = 0; i < out.size(); ++i) see(applied.notation.output(i), out[i].shape);
}

void check_parts(Findings& findings, const AppliedOp& applied, Cutting how) {
  for (const DType type : findings.types()) {
    const AppliedOp typed = in_type(applied, type);
    const double max = findings.tolerance(type).chunks;
    for (const int64_t parts : {2, 3, 100}) {
      how.parts = parts;
      const PartsDifference found = difference_of_parts(typed, how);
      bool is_whole = true;
      for (const Apart& apart : {found.outputs, found.gradients}) {
        if (apart.most < max) continue;
        is_whole = false;
        findings.add(
            notation,
            sentence(parts, " parts along ", how.index, " do not make up the whole: ", apart.where,
                     " is ", apart.most, " of the tensor's largest number", " apart, and ", max,
                     " is the most (", name(type), "); a capital index is not cut"));
      }
      if (!is_whole) return;
    }
  }
}

void check_parts(Findings& findings, const AppliedOp& applied) {
  const auto along = [&](char index, PartForm form) {
    findings.attempt(sentence("parts along ", index), [&] {
      check_parts(findings, applied, {index, 1, form});
    });
  };
  for (const char index : leading_indices(applied.notation)) {
    along(index, PartForm::slices);
    along(index, PartForm::rows);
  }
  for (const char index : other_separable_indices(applied.notation)) {
    along(index, PartForm::slices);
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
  check_parts(findings, applied);
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
