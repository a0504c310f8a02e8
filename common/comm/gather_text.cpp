#include "common/comm/gather_text.h"

namespace ladder {

std::vector<std::string> gather_text(Comm& comm, std::string text) {
  int64_t own = std::ssize(text);
  std::vector<int64_t> sizes(static_cast<size_t>(comm.size()));
  // As bytes, like the texts: no planted fault is meant for them (faulty_comm.h).
  constexpr int64_t each = sizeof(own);
  comm.all_gather({.ptr = sizes.data(), .dtype = Dtype::U8, .shape = {each * comm.size()}},
                  {.ptr = &own, .dtype = Dtype::U8, .shape = {each}});
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
