#include "spool/models/formats/run_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <vector>

#include "spool/models/formats/checkpoint_mark.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step-", partial_end = ".partial";
// A file that marks a directory as a checkpoint of Spool, which may be removed when it is old.
constexpr const char* marker = ".spool";
constexpr const char *latest_link = "latest", *best_link = "best";

std::string checkpoint_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return sentence(prefix, digits);
}

std::string partial_name(std::string_view name) { return sentence('.', name, partial_end); }

// The step in a checkpoint's name; nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0 || name != checkpoint_name(step)) return {};
  return step;
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_file(to.string(), "written", errno);
}

// Returns false if the file system cannot exchange two names.
bool exchange_paths(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail_file(b.string(), "written", errno);
  return false;
}

fs::file_type type_of(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type();
}

void remove_path(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_file(path.string(), "removed", error.value());
}

void make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
  if (error) fail_file(path.string(), "written", error.value());
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  if (error) fail_file(directory.string(), "read", error.value());
  return names;
}

// Whether a checkpoint has all of its files, each of its full length and with the same mark (files
// of older versions have none); half a copy of a folder does not.
struct Wholeness {
  bool is_whole = false;
  std::optional<CheckpointMark> mark = {};
};

Wholeness wholeness_of(const fs::path& checkpoint) {
  constexpr std::string_view tensors_end = ".safetensors";
  std::vector<std::optional<CheckpointMark>> marks;
  bool has_optimizer = false, has_step = false;
  try {
    for (const std::string& name : names_in(checkpoint)) {
      has_step = has_step || name == "run.json" || name == "step.json";
      if (!name.ends_with(tensors_end)) continue;
      marks.push_back(marked_file(checkpoint / name).mark);
      has_optimizer = has_optimizer || name == "optimizer.safetensors";
    }
  } catch (const Error&) {
    return {};
  }
  const bool is_whole = has_step && has_optimizer && marks.size() > 1 &&
                        std::ranges::all_of(marks, [&](const auto& m) { return m == marks[0]; });
  return is_whole ? Wholeness{true, marks[0]} : Wholeness{};
}

// A copy may lack the marker, because its name is hidden.
bool is_own_checkpoint(const fs::path& path) {
  return type_of(path) == fs::file_type::directory &&
         (path_exists(path / marker) || wholeness_of(path).mark);
}

// Some programs turn a link into an empty file.
bool is_empty_file(const fs::path& path) {
  std::error_code error;
  return type_of(path) == fs::file_type::regular && fs::file_size(path, error) == 0;
}

// Throws if a folder that is not a checkpoint would be replaced.
void check_replaceable(const fs::path& link) {
  check_file(type_of(link) != fs::file_type::directory || is_own_checkpoint(link), link.string(),
             "is neither a link to a checkpoint nor a copy of one; rename it");
}

// The complete checkpoint with the highest step.
std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  if (!path_is_directory(run)) return {};
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(run)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  for (const int64_t step : steps) {
    const fs::path checkpoint = run / checkpoint_name(step);
    if (is_own_checkpoint(checkpoint) && wholeness_of(checkpoint).is_whole) return checkpoint;
  }
  return {};
}

// The name that a link points to or a file contains; empty for anything else.
std::string name_in(const fs::path& link) {
  constexpr uint64_t max_bytes = 255;
  std::error_code error;
  if (type_of(link) == fs::file_type::symlink) return fs::read_symlink(link, error).string();
  if (type_of(link) != fs::file_type::regular || fs::file_size(link, error) > max_bytes) return {};
  std::string name = read_text_file(link, max_bytes);
  name.erase(name.find_last_not_of(" \r\n") + 1);
  return name;
}

File lock(const fs::path& directory) {
  std::error_code error;
  const bool created = fs::create_directories(directory, error);
  check_file(!error, directory.string(), "cannot be the directory of a run: ", error.message());
  if (created) sync_path(fs::absolute(directory).parent_path());
  File file = File::create(directory / ".lock");
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) return file;
  const int reason = errno;
  check_file_setting(reason != EWOULDBLOCK, directory.string(), {"out"},
                     "another run is writing here; choose another directory, or wait");
  fail_file(file.name(), "locked", reason);
}

void remove_partials(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    const bool ours = name.starts_with(".step-") || name.starts_with(".latest") ||
                      name.starts_with(sentence('.', best_link));
    if (ours && name.ends_with(partial_end)) remove_path(directory / name);
  }
}

}  // namespace

std::optional<fs::path> latest_checkpoint(const fs::path& run) {
  const fs::path link = run / latest_link;
  std::error_code error;
  const fs::file_type type = fs::symlink_status(link, error).type();
  if (error == std::errc::no_such_file_or_directory) return newest_checkpoint(run);
  check_file_setting(path_is_directory(run), run.string(), {"out"},
                     "is not a directory, and so not the directory of a run");
  check_file(!error, link.string(), "is not a link to a checkpoint: ", error.message());
  if (type == fs::file_type::directory) {
    check_replaceable(link);
    return link;
  }
  if (is_empty_file(link)) return newest_checkpoint(run);
  const std::string name = name_in(link);
  check_file(!name.empty(), link.string(),
             "is neither a link to a checkpoint nor a file with the name of one; rename it");
  check_file(step_of(name) && path_is_directory(run / name), link.string(), "names ", excerpt(name),
             ", and there is no such checkpoint");
  return run / name;
}

std::optional<fs::path> checkpoint_named_by(const fs::path& file) {
  if (type_of(file) != fs::file_type::regular) return {};
  const std::string name = name_in(file);
  const fs::path checkpoint = file.parent_path() / name;
  return step_of(name) && path_is_directory(checkpoint) ? std::optional(checkpoint) : std::nullopt;
}

void check_run_directory(const fs::path& path) {
  check_setting(!path.empty(), {"out"}, "the run's directory has no name; give it one");
  std::error_code none;
  const auto is_there = [&](const fs::path& p) {
    return fs::exists(p, none) || fs::is_symlink(p, none);
  };
  fs::path nearest = fs::absolute(path);
  while (!is_there(nearest) && nearest.has_relative_path()) nearest = nearest.parent_path();
  check_file_setting(path_is_directory(nearest), nearest.string(), {"out"},
                     "is not a directory; choose another one for the run");
  check_file_setting(!path_exists(path / marker), path.string(), {"out"},
                     "is a checkpoint, which is removed when it is old; choose another directory");
  check_file_setting(::access(nearest.c_str(), W_OK | X_OK) == 0, path.string(), {"out"},
                     "cannot be the directory of a run: ", nearest.string(), " is not writable");
}

void check_best_link(const fs::path& run) {
  const fs::path link = run / best_link;
  const fs::file_type type = type_of(link);
  const bool is_free =
      type == fs::file_type::not_found || type == fs::file_type::symlink || is_empty_file(link);
  check_file_setting(is_free || step_of(name_in(link)) || is_own_checkpoint(link), link.string(),
                     {"out", "keep-best"},
                     "is not a link to a checkpoint, and the best one cannot be named there; "
                     "rename it");
}

RunDirectory::RunDirectory(const fs::path& path, int keep)
    : path_(path), keep_(keep), lock_(lock(path)) {
  check(keep >= 1, "keeping ", keep, " checkpoints; keep at least one");
  remove_partials(path_);
  repair_link(latest_link);
  repair_link(best_link);
  check_half_copies();
}

// Throws if a checkpoint of a step after `latest` lacks files, as in half a copy: the run would
// collide with it later.  A whole copy may only lack hidden files.
void RunDirectory::check_half_copies() const {
  const auto last = latest();
  if (!last) return;
  const int64_t done = step_of(last->filename().string()).value_or(0);
  for (const std::string& name : names_in(path_)) {
    const fs::path checkpoint = path_ / name;
    const bool is_half =
        step_of(name).value_or(0) > done && !is_own_checkpoint(checkpoint) &&
        (path_exists(checkpoint / "run.json") || path_exists(checkpoint / "step.json"));
    check_file(!is_half, checkpoint.string(),
               "is a checkpoint that lacks files, or parts of some; copy it again, or remove it to "
               "go on from step ",
               done);
  }
}

void RunDirectory::write(int64_t step, const std::function<void(const fs::path&)>& write_files) {
  check(step >= 0, "a checkpoint's step must not be negative, and this is ", step);
  check_replaceable(path_ / latest_link);
  const std::string name = checkpoint_name(step);
  const fs::path partial = path_ / partial_name(name);
  std::error_code ignored;
  remove_path(partial);
  try {
    make_directory(partial);
    write_files(partial);
    File::create(partial / marker).close();
    sync_tree(partial);
    publish(partial, path_ / name);
    point(latest_link, name);
    remove_old();
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(partial, ignored);
    fail_file(e.path1().string(), "written", e.code().value());
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

// If the run was resumed from an earlier step, the directory may already have a checkpoint of this
// step.  If `latest` names it, it must never be missing, so the two exchange names.
void RunDirectory::publish(const fs::path& partial, const fs::path& checkpoint) {
  if (fs::symlink_status(checkpoint).type() == fs::file_type::not_found) {
    rename_path(partial, checkpoint);
  } else {
    check_file(is_own_checkpoint(checkpoint), checkpoint.string(),
               "has the name of a checkpoint, and was not written by Spool; rename it");
    if (exchange_paths(partial, checkpoint)) {
      sync_path(path_);
      remove_path(partial);
    } else {
      check_file(latest() != checkpoint, checkpoint.string(),
                 "is the latest checkpoint, which this file system cannot replace atomically");
      remove_checkpoint(checkpoint);
      rename_path(partial, checkpoint);
    }
  }
  sync_path(path_);
}

// Some file systems lack links, and report it with different errors.
void RunDirectory::point(const char* name, const std::string& checkpoint) {
  const fs::path link = path_ / name, partial = path_ / partial_name(name);
  remove_path(partial);
  std::error_code error;
  fs::create_symlink(checkpoint, partial, error);
  if (error) {
    const std::string line = checkpoint + "\n";
    File file = File::create(partial);
    file.write(0, std::as_bytes(std::span(line)));
    file.sync();
    file.close();
  }
  check_replaceable(link);
  const bool is_folder = type_of(link) == fs::file_type::directory;
  if (!is_folder) {
    rename_path(partial, link);
  } else if (!exchange_paths(partial, link)) {
    rename_path(link, path_ / partial_name(sentence(name, ".old")));
    rename_path(partial, link);
  }
  sync_path(path_);
  if (is_folder) remove_partials(path_);
}

// A copy that followed links has a checkpoint in place of each: a second copy, or the only one.
void RunDirectory::repair_link(const char* name) {
  const fs::path folder = path_ / name;
  if (type_of(folder) != fs::file_type::directory) return;
  const auto mark = wholeness_of(folder).mark;
  if (!mark) return;
  const fs::path checkpoint = path_ / checkpoint_name(mark->step);
  const bool is_there = type_of(checkpoint) != fs::file_type::not_found;
  if (is_there && !is_own_checkpoint(checkpoint)) return;
  const Wholeness found = is_there ? wholeness_of(checkpoint) : Wholeness{};
  check_file(!found.is_whole || found.mark == mark, folder.string(),
             "is a copy of another run's checkpoint of step ", mark->step, "; rename it");
  if (!found.is_whole) {
    if (is_there) remove_checkpoint(checkpoint);
    rename_path(folder, checkpoint);
    sync_path(path_);
  }
  point(name, checkpoint.filename().string());
}

std::optional<fs::path> RunDirectory::point_best_to(int64_t step) {
  const std::string name = checkpoint_name(step);
  if (!is_own_checkpoint(path_ / name)) return {};
  check_best_link(path_);
  point(best_link, name);
  remove_old();
  return path_ / best_link;
}

// Renames it to a hidden name first: a half-removed directory would look like a checkpoint.
void RunDirectory::remove_checkpoint(const fs::path& checkpoint) {
  const fs::path aside = path_ / partial_name(checkpoint.filename().string() + ".old");
  remove_path(aside);
  rename_path(checkpoint, aside);
  sync_path(path_);
  remove_path(aside);
}

void RunDirectory::remove_old() {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(path_)) {
    const auto step = step_of(name);
    if (step && is_own_checkpoint(path_ / name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  const auto named_best = path_ / name_in(path_ / best_link);
  const auto spared = latest();
  for (size_t i = static_cast<size_t>(keep_); i < steps.size(); ++i) {
    const fs::path checkpoint = path_ / checkpoint_name(steps[i]);
    if (checkpoint != spared && checkpoint != named_best) remove_checkpoint(checkpoint);
  }
}

}  // namespace spool
