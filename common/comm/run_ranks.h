// Starting ranks: as threads of this process, or as what mpirun has started.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/comm/comm.h"

namespace ladder {

/// What a rank does, from its first to its last line.
using RankBody = std::function<void(Comm&)>;

/// How long ranks wait for one that gives no sign of life (common/comm/liveness.h); 0: for ever.
constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(60);

/// Runs `body` on every rank and returns when all have ended: under mpirun as this process's rank
/// (MpiComm), else as `ranks` threads (ThreadComm), or here if that is one (SelfComm).
/// @throws UserError if mpirun has started another number of processes than `ranks`, which may also
///         be 1 there; and as run_threads()
void run_ranks(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

/// Ranks 0 to ranks - 1, each in a thread of its own; one rank runs in the calling thread.
///
/// A rank that throws ends all: communication of the others throws Aborted. So do ranks that
/// disagree or wait for each other, a thread that the system refuses, and a rank that lets others
/// wait for `timeout` without a sign of life. If that rank stays so, nobody can end it: then this
/// ends the process.
/// @throws RankFailed of the first failure; one rank alone throws what it throws
void run_threads(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

/// Whether mpirun has started this process.
bool under_mpirun();

/// How many processes were started together with this one, itself counted; 1 if nobody tells.
int launched_processes();
/// Which of all this process is, from 0; 0 if nobody tells.
int launched_rank();
/// How many of the processes are on this one's machine. All, if nobody tells.
int launched_here();
/// Which of those it is, from 0; 0 if nobody tells.
int launched_local_rank();
/// "rank 3", of this process "rank 3 on HOST" if there are several machines.
std::string rank_name(int rank);
/// The machine's name where there are several; else empty.
std::string host_name();

/// What the environment says of the machine is replaced by what MPI knows.
struct Neighbors {
  int rank;   ///< launched_local_rank()
  int ranks;  ///< launched_here()
};
void set_neighbors(const Neighbors& neighbors);

/// How many tasks srun has started that nobody joins into one run; 1: none, or it has not.
int separate_tasks();

/// The rank that this process is. An exception is printed with its rank, and ends all processes at
/// once; so does a rank that lets others wait for `timeout` without a sign of life. With
/// LADDER_CHECK_CALLS=1 in the environment ranks compare what they call, and those that call
/// different things end at once. @throws UserError if this build has no MPI
void run_mpi(int ranks, const RankBody& body, std::chrono::milliseconds timeout = kTimeout);

}  // namespace ladder
