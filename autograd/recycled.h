#pragma once

// A list that begins with the memory of the thread's last list of its type, emptied.  A tape's
// lists are likely as long as those of the tape before, and growing new ones costs more than
// everything else a tape does.

#include <utility>

namespace spool {

template <class List>
class Recycled : public List {
 public:
  Recycled() : List(std::move(spare)) {}
  Recycled(Recycled&&) = default;
  Recycled& operator=(Recycled&&) = default;
  ~Recycled() {
    List::clear();
    if (spare.capacity() < List::capacity()) spare = std::move(static_cast<List&>(*this));
  }

 private:
  static inline thread_local List spare;
};

}  // namespace spool
