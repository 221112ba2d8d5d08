#pragma once

// The values of a training run's settings, each of which is declared in a table of
// settings/setting.h. The run's configuration determines the losses: on one device, two runs of the
// same configuration have the same losses, bit for bit, except that AdamW on the host of a GPU
// rounds as the host does (update_loop.h), and unless it says nondeterministic.  A checkpoint
// stores the configuration as JSON.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spool/models/data/examples.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/models/training/trainer.h"

namespace spool {

class JsonField;

struct RunOptions {
  // The configuration.
  std::string model = "gpt2-tiny";  // a preset, or a path to initial weights
  TrainingConfig training = {};
  std::vector<std::string> data = {}, val_data = {};  // paths and globs; no data: default_texts
  DataFormat data_format = DataFormat::automatic;
  bool separate = true;                    // has a token between files of text, see data_reader.h
  TokenizerChoice tokenizer = {};          // of the data; its vocabulary is a file
  std::optional<uint64_t> data_seed = {};  // of the order of the data; none: the seed
  // Of examples in lines of JSON (data/examples.h): whether several share a row, what is learnt,
  // the system's message of conversations that have none, and the format of conversations, which
  // by default is that of the model's template.
  bool pack = true;
  Learn learn = Learn::assistant;
  std::string system = {}, chat_format = {};
  // Steps between evaluations (0: none before the last step), the batches of validation data that
  // each of them reads, evenly spread, and what their losses decide: whether the best model is kept
  // beside the latest, and after how many evaluations without a better one the run ends (0: it
  // does not).  These may change when a run resumes.
  int64_t eval_every = 100, eval_batches = 20;
  bool keep_best = false;
  int64_t patience = 0;

  // Of which the search for a split (split_choice.h) makes the rows of a micro-batch and the number
  // of micro-batches, which are stored; a run that resumes has these many.  None: it has both.
  std::optional<int64_t> tokens_per_step = {};

  // How often examples are read, by which the number of steps is computed, which is stored; none:
  // there is a number of steps.
  std::optional<double> epochs = {};

  // The rest changes where and how the run executes, not its losses.
  Device device = {};
  std::string device_name = {};  // as given; empty: the default device
  bool graph = true;             // capture a step and replay it, where the device can
  int threads = 0;               // of a rank; 0: one per usable core, divided by the ranks
  int sharers = 0;               // ranks that use the same processors; 0: none, or not here
  int ranks_here = 0;            // most ranks on one machine, which share the host's memory
  size_t least_memory = 0;       // bytes that each rank's GPU has free; 0: there are none
  size_t exchange_bytes = 0;     // most of a GPU that exchanges took before, beside any arena
  std::string mesh = {};         // of ranks, as given
  std::string shard_axes = {};   // those of the mesh along which ranks share each micro-batch
  std::string shard = {};        // how they do: a policy (ShardPolicy), or a file
  std::string save_shard = {};   // a file to write that to
  std::string ranks_as = {};     // "threads" or "processes"; empty: threads
  std::string meet = {};         // HOST:PORT of ranks that a launcher started; empty: its own
  double rank_timeout = 120;     // seconds
  Policy policy = {};
  std::string spill_directory = {};  // for values that are offloaded to a disk
  std::string plan = {};             // a file; empty: the plan comes from the policy
  std::string save_plan = {};        // a file to write the plan to
  // Budget in bytes; 0: the foretold peak, of a plan that fits into what is free.
  size_t memory = 0;
  // Bytes of the host for what leaves a GPU by choice; none: half the host's memory.
  std::optional<size_t> host_memory = {};
  std::string out = {}, log = {}, trace = {}, report = {};
  std::filesystem::path default_texts = {};  // source tree whose texts are the default data
  bool resume = false;
  bool dry_run = false;                              // only foretell
  bool sample = true;                                // text is written at the end, at least
  int64_t checkpoint_every = 250, sample_every = 0;  // steps; 0: only at the end
  double checkpoint_minutes = 0;                     // of the wall clock; 0: not by time
  int keep_checkpoints = 2;
  // Batches of validation data that the evaluation after the last step reads; 0: there is none; no
  // number: it reads all data.
  std::optional<int64_t> final_eval_batches = {};

  // Keys of the settings that were given; the others may come from a preset or a stored run.
  std::set<std::string> given = {};
};

// Whether the model is a path to weights rather than a preset.
bool has_weights(const std::string& model);

// Texts that are given for settings, as on a command line, by key.
using GivenTexts = std::map<std::string, std::vector<std::string>>;
// The options of a run: each setting, in the order of their declarations, has what is given for it,
// or else its default.  Throws if there is no such setting, a text cannot be, or settings that are
// given contradict each other: a sentence of that names settings as name_of() says, such as by
// their flags.
using NameOfKey = std::string (*)(const std::string& key);
inline std::string key_alone(const std::string& key) { return key; }
RunOptions run_options(const GivenTexts&, NameOfKey name_of = key_alone);

// What the model of the options says of settings that are not given.
TrainingDefaults training_defaults(const RunOptions&);

// Whether the data that the options name is examples in lines of JSON; not if it cannot be read.
bool names_examples(const RunOptions&);
// The micro-batches of a step without ranks, if nothing is given: one of examples, as each of its
// rows has several.
int64_t usual_micro_batches(const RunOptions&);
// Throws if a setting of examples is given, and the data is text or tokens.
void check_settings_of_examples(const RunOptions&, bool are_examples);

// "Defaults that depend on the model:" and a line for each preset, such as "gpt2-tiny: {layers} 4".
std::string table_of_presets();

// The plan in the file that the options name, if they do.  Takes the chunks of the loss and of the
// MLPs that it was made for.  Throws if one that was given differs, or one of a run that resumes,
// which keeps its own.
std::optional<Plan> read_given_plan(RunOptions&);

// The configuration as JSON, each setting under its key.
nlohmann::json configuration(const RunOptions&);

// Replaces the configuration by a stored run's; what an earlier version did not store has its
// default.  Throws if a setting that was given differs, except that a run may become longer, and
// its data may have moved, which its fingerprint tells.
void adopt(RunOptions&, const JsonField& stored);

// Keys of the settings that change no number of a step: paths, how their files are read, which the
// fingerprint of the data tells, and what concerns evaluations.
const std::set<std::string>& settings_without_numbers();

// Throws if one of the settings that TrainingConfig lacks is out of range, or two contradict each
// other.
void check_run_settings(const RunOptions&);

// Throws unless each of the files that the run writes has a name of its own, also among the others
// that are given, under their keys.
using NamedFiles = std::vector<std::pair<const char*, std::string>>;
void check_names_differ(const RunOptions&, const NamedFiles& others = {});

// Throws if a setting, such as a path, cannot be stored.
void check_can_be_stored(const RunOptions&);

}  // namespace spool
