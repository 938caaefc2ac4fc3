// A matrix product whose parallel loops run on a pool of threads of this program's.
#include "product.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

class Pool {
 public:
  explicit Pool(unsigned count) {
    for (unsigned n = 0; n < count; n++) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    for (auto &thread : threads_) thread.join();
  }
  // Run task(i) once for each i in [begin, end), and return when all have returned.
  void run(std::int64_t begin, std::int64_t end, const std::function<void(std::int64_t)> &task) {
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = &task, next_ = begin, end_ = end, left_ = end - begin;
    wake_.notify_all();
    done_.wait(lock, [this] { return left_ == 0; });
    task_ = nullptr;
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ended_ || (task_ && next_ < end_); });
      if (ended_) return;
      const auto *task = task_;
      const std::int64_t i = next_++;
      lock.unlock();
      (*task)(i);
      lock.lock();
      if (--left_ == 0) done_.notify_all();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::int64_t)> *task_ = nullptr;
  std::int64_t next_ = 0, end_ = 0, left_ = 0;
  bool ended_ = false;
};

std::atomic<int> regions{0};

int parallel_for(int (*function)(void *, std::int64_t), void *context, std::int64_t begin, std::int64_t end, void *user) {
  std::atomic<int> status{0};
  regions++;
  static_cast<Pool *>(user)->run(begin, end, [&](std::int64_t i) {
    if (int found = function(context, i)) status = found;
  });
  return status;
}

}  // namespace

int main() {
  constexpr std::int64_t n = 300;
  Pool pool(3);
  const polyker_runtime runtime{{nullptr, nullptr, nullptr}, parallel_for, &pool};
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (std::int64_t i = 0; i < n * n; i++) a[i] = static_cast<float>(i % 7), b[i] = static_cast<float>(i % 5);
  std::vector<char> memory(static_cast<std::size_t>(product_scratch(n, n, n)) + 64);
  auto place = (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) & ~std::uintptr_t{63};
  if (int status = product(a.data(), b.data(), c.data(), n, n, n, reinterpret_cast<void *>(place), &runtime)) {
    std::fprintf(stderr, "%s\n", product_error(status));
    return 1;
  }
  for (std::int64_t i = 0; i < n; i += 37)
    for (std::int64_t j = 0; j < n; j += 41) {
      float sum = 0;
      for (std::int64_t k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
      if (sum != c[i * n + j]) return std::fprintf(stderr, "C[%d,%d] is wrong\n", int(i), int(j)), 1;
    }
  std::printf("right, %d parallel regions on threads of this program\n", regions.load());
  return 0;
}
