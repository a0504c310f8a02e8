// Starting ranks: as threads of this process, or as the processes that mpirun started.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/comm.h"

namespace ladder {

/// What a rank does, from beginning to end.
using RankBody = std::function<void(Comm&)>;

/// How long a rank waits for others (common/comm/patience.h); 0: for ever.
constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(600);

/// Runs `body` on every rank, and returns when all have ended. Under mpirun this process is one
/// rank (MpiComm). Otherwise ranks are `ranks` threads (ThreadComm); a single rank runs in this
/// thread (SelfComm).
/// @throws UserError if mpirun started another number of processes than `ranks` (1 is always
/// accepted there); and as run_threads() does
void run_ranks(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

/// Runs ranks 0 to ranks - 1, each in its own thread. A single rank runs in the calling thread.
///
/// All ranks end if one of them throws: communication of the others throws Aborted. All also end if
/// ranks disagree or wait for each other, if the system refuses a thread, or if a rank waits for
/// longer than `timeout`. After such a wait this ends the process, if a rank still does not end.
/// @throws RankFailed of the first failure; one rank alone throws what it throws
void run_threads(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

/// Whether mpirun started this process.
bool under_mpirun();

/// How many processes were started together, including this one; 1 if nobody tells.
int launched_processes();
/// The number of this process among them, from 0; 0 if nobody tells.
int launched_rank();
/// How many of these processes are on this machine; all of them if nobody tells.
int launched_here();
/// The number of this process among those on this machine, from 0; 0 if nobody tells.
int launched_local_rank();
/// "rank 3"; if this process is that rank and there are several machines, "rank 3 on HOST".
std::string rank_name(int rank);
/// "rank 3", "ranks 0, 2"; of many the first few.
std::string ranks_text(const std::vector<int>& ranks);
/// The name of this machine.
std::string machine_name();
/// The same if there are several machines; otherwise empty.
std::string host_name();

/// What MPI knows of this machine. It replaces what the environment says.
struct Neighbors {
  int rank;   ///< launched_local_rank()
  int ranks;  ///< launched_here()
};
void set_neighbors(const Neighbors& neighbors);

/// Runs `body` as the rank that this process is. An exception is printed with its rank, and ends
/// all processes at once. So does a wait that is longer than `timeout`.
/// @throws UserError if this build has no MPI
void run_mpi(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

}  // namespace ladder
