// A pipeline in one short file: p stages in p threads, and a model of p weights. Stage s multiplies
// by w[s], so the model is y = w[0] w[1] ... w[p-1] x and its loss the mean of (y - 1)^2 / 2.
// Backward needs the input of the oldest micro-batch in flight; the newest gives wrong gradients.
//
//   g++ -std=c++20 -pthread chapters/12_pipeline_parallel/toy.cpp -o toy && ./toy

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

/// Numbers on their way from one stage to a neighbor. A send does not wait; a receive does.
class Channel {
 public:
  void send(double x) {
    const std::scoped_lock lock(mutex_);
    numbers_.push(x);
    arrived_.notify_one();
  }
  double receive() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !numbers_.empty(); });
    const double x = numbers_.front();
    numbers_.pop();
    return x;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::queue<double> numbers_;
};

constexpr int p = 3, m = 4;  // stages, micro-batches of one number each
constexpr double w[p] = {0.5, 2, 1.5}, batch[m] = {1, 2, 3, 4};

struct Stage {
  double dw = 0;                  // the gradient of w[s] over the whole batch
  std::vector<size_t> in_flight;  // before each backward
};

/// 1F1B: first p - s - 1 forwards, then one forward and one backward in turn. Between stages s - 1
/// and s, ahead[s] carries the input of stage s, and back[s] the gradient of that input.
/// @param newest the mistake: backward takes the input that came last
Stage stage(int s, std::vector<Channel>& ahead, std::vector<Channel>& back, bool newest) {
  std::deque<double> in_flight;  // inputs of micro-batches whose backward is still to come
  Stage result;
  const auto forward = [&](int k) {
    const double x = s == 0 ? batch[k] : ahead[s].receive();
    in_flight.push_back(x);
    if (s < p - 1) ahead[s + 1].send(w[s] * x);
  };
  const auto backward = [&] {
    const double x = newest ? in_flight.back() : in_flight.front();
    in_flight.pop_front();
    const double dy = s < p - 1 ? back[s + 1].receive() : (w[s] * x - 1) / m;
    if (s > 0) back[s].send(w[s] * dy);  // the stage before waits for this
    result.dw += dy * x;                 // nobody waits for this
  };
  int next = 0;
  while (next < p - s - 1 && next < m) forward(next++);
  for (int k = 0; k < m; ++k) {
    if (next < m) forward(next++);
    result.in_flight.push_back(in_flight.size());
    backward();
  }
  return result;
}

std::vector<Stage> pipeline(bool newest) {
  std::vector<Channel> ahead(p), back(p);
  std::vector<Stage> result(p);
  std::vector<std::thread> threads;
  for (int s = 0; s < p; ++s)
    threads.emplace_back([&, s] { result[s] = stage(s, ahead, back, newest); });
  for (std::thread& one : threads) one.join();
  return result;
}

int main() {
  const std::vector<Stage> right = pipeline(false), wrong = pipeline(true);
  // The same on one rank. Nothing rounds here, so == may compare.
  double product = 1, sum = 0;
  for (const double factor : w) product *= factor;
  for (const double x : batch) sum += (product * x - 1) / m * x;
  bool good = wrong[0].dw != right[0].dw;
  for (int s = 0; s < p; ++s) {
    const std::vector<size_t>& in_flight = right[s].in_flight;
    for (int k = 0; k < m; ++k)
      std::printf("stage %d: backward of micro-batch %d, %zu in flight\n", s, k, in_flight[k]);
    const size_t most = *std::max_element(in_flight.begin(), in_flight.end());
    const double one = sum * product / w[s];
    std::printf("dw[%d] = %g, on one rank %g, with the newest input %g; at most %zu in flight\n", s,
                right[s].dw, one, wrong[s].dw, most);
    good = good && right[s].dw == one && most == static_cast<size_t>(p - s);
  }
  return good ? 0 : 1;
}
