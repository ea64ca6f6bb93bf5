//go:build cgo && testfault

// Allocations that fail when a test says so.
#include <cstdlib>
#include <new>

namespace {
thread_local long left = -1;  // allocations until one fails; below 0: none does

void *allocate(std::size_t n) {
  if (left >= 0 && left-- == 0) throw std::bad_alloc();
  void *p = std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void *operator new(std::size_t n) { return allocate(n); }
void *operator new[](std::size_t n) { return allocate(n); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t) noexcept { std::free(p); }

extern "C" long inferplan_highs_fail_allocation(long n) {
  const long was = left;
  left = n;
  return was;
}
