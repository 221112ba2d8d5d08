#include "spool/models/formats/checkpoint_mark.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>

namespace spool {
namespace {

constexpr const char *step_key = "spool_step", *run_key = "spool_run";

std::optional<CheckpointMark> mark_of(const SafetensorsReader& file) {
  const auto run = file.metadata().find(run_key), step = file.metadata().find(step_key);
  const auto none = file.metadata().end();
  if (run == none && step == none) return {};
  CheckpointMark mark;
  bool whole = run != none && step != none;
  if (whole) {
    mark.run = run->second;
    const std::string& digits = step->second;
    std::from_chars(digits.data(), digits.data() + digits.size(), mark.step);
    whole = std::to_string(mark.step) == digits;
  }
  check_file(whole, file.name(), "its metadata does not name a run and a step");
  return mark;
}

std::string in_words(const std::optional<CheckpointMark>& mark) {
  return mark ? sentence("of step ", mark->step) : std::string("of no step, as of older versions");
}

}  // namespace

std::string hash_in_words(uint64_t hash) { return fmt::format("{:016x}", hash); }

Metadata metadata_of(const CheckpointMark& mark) {
  return {{step_key, std::to_string(mark.step)}, {run_key, mark.run}};
}

MarkedFile marked_file(const std::filesystem::path& safetensors) {
  return {safetensors, mark_of(SafetensorsReader(safetensors))};
}

void check_belong_together(const std::filesystem::path& checkpoint,
                           const std::array<MarkedFile, 3>& files) {
  std::string all;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& [path, mark] = files[i];
    const auto &other = files[(i + 1) % 3].mark, &third = files[(i + 2) % 3].mark;
    const bool another_run = mark && other && mark->run != other->run;
    check_file(mark == other || other != third, path, "is ", in_words(mark),
               another_run ? " of another run" : "", ", and the other files of the checkpoint are ",
               in_words(other), remedy_of_mixed_checkpoint);
    all += sentence(all.empty() ? "" : ", ", path.filename().string(), ' ', in_words(mark));
  }
  check_file(files[0].mark == files[1].mark, checkpoint,
             "its files are of three checkpoints: ", all, remedy_of_mixed_checkpoint);
}

}  // namespace spool
