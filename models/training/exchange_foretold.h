#pragma once

// What a step's exchanges between ranks are foretold to send and to take, for tables, and as the
// members of the JSON report (plan_report.h) that are of ranks.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "spool/planner/rehearsal.h"

namespace spool {

// All exchanges of a step with one name.
struct ExchangesOfAName {
  std::string name = {};  // "gradients", "parameters", "norms", "all-reduce along tensor"
  size_t count = 0;
  size_t bytes = 0;                         // sent by a rank
  double seconds = 0, exposed_seconds = 0;  // of which nothing hides the latter
};

struct ExchangeForetold {
  int ranks = 0;
  int ranks_of_machine = 0;            // 0: all of them
  std::string launcher = {};           // "torchrun"; empty: the program itself
  std::vector<std::string> cuts = {};  // what each axis cuts of ops that ranks share
  int zero = 2;
  int replicas = 1;           // of ranks, that have micro-batches of their own
  int64_t micro_batches = 1;  // of a rank
  // Those of a step that the model would have without ranks, if it now has others.
  int64_t rounded_from = 0;
  int buckets_in_flight = 0;
  size_t bucket_bytes = 0;
  Link link = {};                  // between ranks of one machine
  std::string measured_link = {};  // by what that exchanges ("sockets"); empty: not measured
  // Of a step, by what a rank sends.
  size_t sent_bytes = 0;
  double seconds = 0;                       // of exchanges and sums, on their queue
  double exposed_seconds = 0;               // by which they make the step longer
  std::vector<ExchangesOfAName> list = {};  // by their first exchange
  size_t max_bytes = 0;  // of the device that exchanges hold (Purpose::exchange) at any time
  std::vector<size_t> peaks = {};  // of each rank, if they differ
  // Hashes of what is the same on all ranks: the exchanges' names in their order, and where and
  // when the step has memory.
  uint64_t order = 0, layout = 0;

  size_t sent(std::string_view name) const;  // by exchanges whose name begins so
};

// Of the step of a rank with all its micro-batches, rehearsed with RehearsalOptions::allocations:
// the members from `sent_bytes` to `max_bytes`, and the hashes.
ExchangeForetold exchanges_of(const RehearsedStep&);

// "8 ranks of h200", "4 ranks by torchrun of h200", "16 ranks of h200, 8 on a machine".
std::string ranks_in_words(const ExchangeForetold&, std::string machine);
// "1 micro-batch a rank; ZeRO 2: gradients and state divided; 2 buckets of 16.0 MiB in flight".
std::string division_in_words(const ExchangeForetold&);
// "sent by a rank: 415 gradients, 208 parameters", beside the sum of all, in its unit.
std::string sent_in_words(const ExchangeForetold&);
// Of values that move between ranks that share ops: "all-reduce along tensor", by their first
// exchange.
std::vector<ExchangesOfAName> moves_of(const ExchangeForetold&);
// "3.1 GB/s", and beside it "each way, and 20 us; measured, by sockets".
std::string link_rate(const ExchangeForetold&);
std::string link_note(const ExchangeForetold&);
// "Each of 8 ranks sends 623 MiB a step, in 24 exchanges; ...".
std::string sentence_of(const ExchangeForetold&, double step_seconds);

// The members "ranks", "zero", "buckets_in_flight" and "exchange" of a report (plan_report.h), and
// "peak_bytes_by_rank" where they differ.
nlohmann::json to_json(const ExchangeForetold&);

}  // namespace spool
