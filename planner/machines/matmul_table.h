#pragma once

// Files of the fastest algorithms for matrix products, found by timing them; as JSON:
//
//   {"format": "spool-matmul-algorithms", "format_version": 1,
//    "device": "NVIDIA H200", "cublaslt": 130100, "places": {"a product of (32768, 768) ...": 3}}

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "spool/kernels/matmul_algorithms.h"
#include "spool/runtime/files/json.h"

namespace spool {

nlohmann::json to_json(const MatmulAlgorithms&);
// Throws if a field is missing or wrong.
MatmulAlgorithms matmul_algorithms_from_json(const JsonField&);

// The file in the folder for the table of this device and library.
std::filesystem::path matmul_table_file(const std::filesystem::path& folder,
                                        const MatmulAlgorithms& of);
void save_matmul_table(const std::filesystem::path& file, const MatmulAlgorithms&);
// The table for this device and library, empty if there is none.  Throws if the file is not such a
// table.
MatmulAlgorithms load_matmul_table(const std::filesystem::path& folder, const MatmulAlgorithms& of);

// Makes the stream compute products by the table that a run began with, else by the one in the
// user's cache: where a device is measured, and where a model trains, is evaluated or writes.
// Returns the table in use, empty if there is none.  A table that is damaged, or of another device
// or library, is not used, and a warning says so (runtime/log.h).
MatmulAlgorithms use_tuned_products(Stream&, const std::optional<MatmulAlgorithms>& of_run = {});

}  // namespace spool
