#pragma once

// A list that reuses the memory of the thread's last list of its type.  A tape's lists are likely
// as long as those of the tape before, and growing new ones costs more than everything else a tape
// does.

#include <utility>

namespace spool {

template <class List>
class Recycled : public List {
 public:
  Recycled() {
    if (!is_gone) List::operator=(std::move(spare().list));
  }
  Recycled(Recycled&&) noexcept = default;
  Recycled& operator=(Recycled&&) noexcept = default;
  ~Recycled() {
    List::clear();
    if (is_gone || spare().list.capacity() >= List::capacity()) return;
    spare().list = std::move(static_cast<List&>(*this));
  }

 private:
  struct Spare {
    List list;
    ~Spare() { is_gone = true; }
  };
  static inline thread_local bool is_gone = false;  // lists of static storage outlive the spare
  // A static member would be simpler; g++ 12 fails on one, in a class with a tape as a member.
  static Spare& spare() {
    thread_local Spare of_thread;
    return of_thread;
  }
};

}  // namespace spool
