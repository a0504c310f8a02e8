#include "common/comm/mpi_handles.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numeric>

#include "common/comm/elements.h"

namespace ladder::mpi {
namespace {

/// A function with MPI's signature: b[i] = a[i] combined with b[i].
template <Dtype dtype, Combine combine>
void combine_in_mpi(void* a, void* b, int* n, MPI_Datatype*) {
  combine_elements({.ptr = b, .dtype = dtype, .shape = {*n}},
                   {.ptr = a, .dtype = dtype, .shape = {*n}}, combine);
}

/// Null if MPI's own function will do.
MPI_User_function* own_function(Dtype dtype, Combine combine) {
  const bool max = combine == Combine::Max;
  switch (dtype) {
    case Dtype::F32: return max ? combine_in_mpi<Dtype::F32, Combine::Max> : nullptr;
    case Dtype::F64: return max ? combine_in_mpi<Dtype::F64, Combine::Max> : nullptr;
    case Dtype::BF16:
      return max ? combine_in_mpi<Dtype::BF16, Combine::Max>
                 : combine_in_mpi<Dtype::BF16, Combine::Sum>;
    case Dtype::F16:
      return max ? combine_in_mpi<Dtype::F16, Combine::Max>
                 : combine_in_mpi<Dtype::F16, Combine::Sum>;
    default: return nullptr;
  }
}

}  // namespace

void check(int error, const char* call) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  throw CheckError(fmt::format("{}: {}", call, text.data()));
}

Session::Session(const Patience& patience) : patience_(patience) {
  const std::jthread deadline = end_unless_done(patience, "other ranks at the start of MPI");
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  CHECK(provided == MPI_THREAD_MULTIPLE, "this MPI does not let several threads communicate");
}

// It waits for mpirun, which may be unreachable by now.
Session::~Session() {
  const std::jthread deadline = end_unless_done(
      patience_, "the end of MPI, though the run has ended: what it was to write is written");
  MPI_Finalize();
}

Group::Group(MPI_Comm comm) : comm_(comm) {
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Group::~Group() {
  if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

MPI_Comm Group::copy_of_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return comm;
}

int Group::rank() const {
  int rank = 0;
  check(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int Group::size() const {
  int size = 0;
  check(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> Group::ranks_in_world() const {
  std::vector<int> here(static_cast<size_t>(size())), there(here.size());
  std::iota(here.begin(), here.end(), 0);
  MPI_Group mine = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &mine), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(mine, size(), here.data(), world, there.data()),
        "MPI_Group_translate_ranks");
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  return there;
}

Op::Op(Dtype dtype, Combine combine) : op_(combine == Combine::Sum ? MPI_SUM : MPI_MAX) {
  MPI_User_function* function = own_function(dtype, combine);
  own_ = function != nullptr;
  if (own_) check(MPI_Op_create(function, /*commute=*/1, &op_), "MPI_Op_create");
}

Op::~Op() {
  if (own_) MPI_Op_free(&op_);
}

MPI_Datatype datatype(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return MPI_FLOAT;
    case Dtype::F64: return MPI_DOUBLE;
    case Dtype::I32: return MPI_INT32_T;
    case Dtype::I64: return MPI_INT64_T;
    case Dtype::BF16:
    case Dtype::F16: return MPI_UINT16_T;
    default: return MPI_UINT8_T;
  }
}

int count(const Tensor& data) {
  CHECK(data.size() <= std::numeric_limits<int>::max(), "MPI counts to 2^31 - 1, not to {}",
        data.size());
  return static_cast<int>(data.size());
}

void end_processes(int status) {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace ladder::mpi
