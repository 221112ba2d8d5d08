#pragma once

// The commands of the program `spool`, each in a file of its own.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "spool/models/cli/interrupt.h"
#include "spool/models/data/text_files.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/runtime/device.h"

namespace spool {

// Each adds a command to the program, and returns a function that runs it and returns the exit
// code.
std::function<int()> add_train(CLI::App&);
std::function<int()> add_plan(CLI::App&);
std::function<int()> add_generate(CLI::App&);
std::function<int()> add_tokenize(CLI::App&);
std::function<int()> add_eval(CLI::App&);
std::function<int()> add_convert(CLI::App&);
std::function<int()> add_plot(CLI::App&);
std::function<int()> add_info(CLI::App&);
std::function<int()> add_calibrate(CLI::App&);
std::function<int()> add_shard(CLI::App&);
std::function<int()> add_show_data(CLI::App&);

// Flags that several commands have.
void add_tokenizer_flags(CLI::App&, TokenizerChoice&);
CLI::Option* add_model_flag(CLI::App&, std::string& model);
// An adapter of the model, and the base of one; see ModelPaths.
void add_adapter_flags(CLI::App&, std::string& adapter, std::string& base);
// Flags for how data files are read (data_reader.h).
void add_data_format_flags(CLI::App&, DataFormat&, bool& separate);
// The device that the flag names, or the default one if it is empty.  Throws if the machine lacks
// it.
Device device_of(const std::string& flag);
// Whether ranks have GPUs, as the flag says or, without one, SPOOL_DEVICE or this machine.  Makes
// no context on any.  Throws if one GPU alone is named.
bool chooses_gpus(const std::string& flag);
CLI::Option* add_dtype_flag(CLI::App&, std::string& dtype, const std::string& what);
// Where the parameters of a model that is not trained live.
CLI::Option* add_parameters_flag(CLI::App&, std::string& parameters);

}  // namespace spool
