// A pipeline in one short file: p stages in p threads, and a model of p weights. Stage s multiplies
// by w[s], so the model is y = w[0] w[1] ... w[p-1] x and its loss the mean of (y - 1)^2 / 2.
//
//   g++ -std=c++20 -pthread chapters/12_pipeline_parallel/toy.cpp -o toy && ./toy

#include <condition_variable>
#include <cstdio>
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

/// The gradient of w[s] over the whole batch. 1F1B: first p - s - 1 forwards, then one forward and
/// one backward in turn. Between stages s - 1 and s, ahead[s] carries the input of stage s, and
/// back[s] the gradient of that input.
double stage(int s, std::vector<Channel>& ahead, std::vector<Channel>& back) {
  std::queue<double> in_flight;  // what this stage has read; backward needs it
  double dw = 0;
  const auto forward = [&](int k) {
    const double x = s == 0 ? batch[k] : ahead[s].receive();
    in_flight.push(x);
    if (s < p - 1) ahead[s + 1].send(w[s] * x);
  };
  const auto backward = [&] {
    const double x = in_flight.front();
    in_flight.pop();
    const double dy = s < p - 1 ? back[s + 1].receive() : (w[s] * x - 1) / m;
    if (s > 0) back[s].send(w[s] * dy);  // the stage before waits for this
    dw += dy * x;                        // nobody waits for this
  };
  int next = 0;
  while (next < p - s - 1 && next < m) forward(next++);
  for (int k = 0; k < m; ++k) {
    if (next < m) forward(next++);
    std::printf("stage %d: backward of micro-batch %d, %zu in flight\n", s, k, in_flight.size());
    backward();
  }
  return dw;
}

int main() {
  std::vector<Channel> ahead(p), back(p);
  std::vector<double> dw(p);
  std::vector<std::thread> stages;
  for (int s = 0; s < p; ++s) stages.emplace_back([&, s] { dw[s] = stage(s, ahead, back); });
  for (std::thread& one : stages) one.join();

  // The same by hand, on one rank. Nothing rounds here, so == may compare.
  double product = 1, sum = 0;
  for (const double factor : w) product *= factor;
  for (const double x : batch) sum += (product * x - 1) / m * x;
  bool same = true;
  for (int s = 0; s < p; ++s) {
    std::printf("dw[%d] = %g, on one rank %g\n", s, dw[s], sum * product / w[s]);
    same = same && dw[s] == sum * product / w[s];
  }
  return same ? 0 : 1;
}
