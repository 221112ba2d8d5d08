#pragma once

// What one rank can tell of a GPU and of the NCCL that is there: each question that Spool's ranks
// depend on, asked by itself.

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace spool::testing {

using Measured = std::vector<std::pair<std::string, double>>;

// A question that cannot be asked, as one before it failed.
struct LeftOut : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Each call asks a question, in this order; it throws where the answer is no.
class OneRank {
 public:
  explicit OneRank(int device);
  ~OneRank();
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;

  Measured communicator();  // the memory that is free before and after
  Measured arena();
  Measured window();
  Measured exchanges();
  Measured captured();
  Measured replayed(int times);
  Measured ended();
  Measured aborted();
  Measured ranks();  // a rank as training has it

 private:
  class Group;
  int device_;
  std::unique_ptr<Group> group_;
};

}  // namespace spool::testing
