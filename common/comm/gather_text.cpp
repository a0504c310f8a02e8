#include "common/comm/gather_text.h"

namespace ladder {

std::vector<std::string> gather_text(Comm& comm, std::string text) {
  int64_t own = std::ssize(text);
  std::vector<int64_t> sizes(static_cast<size_t>(comm.size()));
  comm.all_gather({.ptr = sizes.data(), .dtype = Dtype::I64, .shape = {comm.size()}},
                  {.ptr = &own, .dtype = Dtype::I64, .shape = {1}});
  const auto tensor = [](std::string& bytes) {
    return Tensor{.ptr = bytes.data(), .dtype = Dtype::U8, .shape = {std::ssize(bytes)}};
  };
  if (comm.rank() != 0) {
    comm.exchange(tensor(text), 0, {}, 0);
    return {};
  }
  std::vector<std::string> all{std::move(text)};
  for (int rank = 1; rank < comm.size(); ++rank) {
    all.emplace_back(static_cast<size_t>(sizes[static_cast<size_t>(rank)]), '\0');
    comm.exchange({}, 0, tensor(all.back()), rank);
  }
  return all;
}

}  // namespace ladder
