#include "spool/models/formats/run_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "spool/runtime/check.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step-", partial_end = ".partial";
// A file that marks a directory as Spool's checkpoint, which may be removed when it is old.
constexpr const char* marker = ".spool";
constexpr const char* best = "best";  // a link

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

// Returns false if the file system cannot exchange names.
bool exchange_paths(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) fail_file(b.string(), "written", errno);
  return false;
}

bool is_own_checkpoint(const fs::path& path) {
  return fs::symlink_status(path).type() == fs::file_type::directory && path_exists(path / marker);
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
                      name.starts_with(sentence('.', best));
    if (ours && name.ends_with(partial_end)) remove_path(directory / name);
  }
}

}  // namespace

std::optional<fs::path> latest_checkpoint(const fs::path& run) {
  const fs::path link = run / "latest";
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  check_file_setting(path_is_directory(run), run.string(), {"out"},
                     "is not a directory, and so not the directory of a run");
  check_file(!error, link.string(), "is not a link to a checkpoint: ", error.message());
  check_file(step_of(target.string()) && path_is_directory(run / target), link.string(), "names ",
             target.string(), ", and there is no such checkpoint");
  return run / target;
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
  const fs::path link = run / best;
  std::error_code error;
  const fs::file_type type = fs::symlink_status(link, error).type();
  check_file_setting(type == fs::file_type::not_found || type == fs::file_type::symlink,
                     link.string(), {"out", "keep-best"},
                     "is not a link to a checkpoint, and the best one cannot be named there; "
                     "rename it");
}

RunDirectory::RunDirectory(const fs::path& path, int keep)
    : path_(path), keep_(keep), lock_(lock(path)) {
  check(keep >= 1, "keeping ", keep, " checkpoints; keep at least one");
  remove_partials(path_);
}

void RunDirectory::write(int64_t step, const std::function<void(const fs::path&)>& write_files) {
  check(step >= 0, "a checkpoint's step must not be negative, and this is ", step);
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
    point("latest", name);
    remove_old();
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(partial, ignored);
    fail_file(e.path1().string(), "written", e.code().value());
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

// The directory may have a checkpoint of that step already, if the run was resumed from an earlier
// one.  If `latest` names it, it must never be missing, so the two exchange names.
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

void RunDirectory::point(const char* name, const std::string& checkpoint) {
  const fs::path link = path_ / name, partial = path_ / partial_name(name);
  remove_path(partial);
  std::error_code error;
  fs::create_symlink(checkpoint, partial, error);
  if (error) fail_file(partial.string(), "written", error.value());
  rename_path(partial, link);
  sync_path(path_);
}

std::optional<fs::path> RunDirectory::point_best_to(int64_t step) {
  const std::string name = checkpoint_name(step);
  if (!is_own_checkpoint(path_ / name)) return {};
  check_best_link(path_);
  point(best, name);
  remove_old();
  return path_ / best;
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
  std::error_code none;
  const auto named_best = path_ / fs::read_symlink(path_ / best, none);
  const auto spared = latest();
  for (size_t i = static_cast<size_t>(keep_); i < steps.size(); ++i) {
    const fs::path checkpoint = path_ / checkpoint_name(steps[i]);
    if (checkpoint != spared && checkpoint != named_best) remove_checkpoint(checkpoint);
  }
}

}  // namespace spool
