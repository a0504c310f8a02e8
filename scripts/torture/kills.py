"""kill -9 at random moments of a run that saves after each step."""

import time

from trial import Result, kill


def kills(trials, count, random):
    """`count` kills, spread over the trials' programs."""
    result = Result("kills")
    seconds = [full_run(trial) for trial in trials]
    for i in range(count):
        trial, length = trials[i % len(trials)], seconds[i % len(trials)]
        directory = trial.directory()
        process = trial.program.start(*trial.resumed(directory))
        moment = random.uniform(0, length)
        time.sleep(moment)
        kill(process)
        result.add(f"{trial.program.path.name} after {moment * 1e3:.1f} ms",
                   trial.problem(directory))
    return result


def full_run(trial):
    """Seconds of a run that nothing kills."""
    begin = time.monotonic()
    trial.program.run(*trial.resumed(trial.directory()))
    return time.monotonic() - begin
