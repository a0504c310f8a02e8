"""Laws of loss, fitted to runs: a power law, a parabola, and L(N, D) = E + A / N^alpha + B / D^beta.

N are parameters, D tokens. Error bars are the middle 80% of fits to runs drawn again with replacement.
"""

import json
import math
import random


def solve(matrix, right):
    """The solution of three equations, by elimination with pivots; None if there is not one."""
    rows = [row + [r] for row, r in zip(matrix, right)]
    for i in range(3):
        pivot = max(range(i, 3), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-15:
            return None
        for k in range(3):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][3] / rows[i][i] for i in range(3)]


def polynomial(x, y):
    """c, b, a of the parabola a x^2 + b x + c of least squares; None if the points do not fix one."""
    rows = [[1, at, at * at] for at in x]
    matrix = [[sum(r[i] * r[j] for r in rows) for j in range(3)] for i in range(3)]
    return solve(matrix, [sum(r[i] * value for r, value in zip(rows, y)) for i in range(3)])


def least(N, loss):
    """The N of least loss, and that loss, by a parabola through log N; None if it has none among these N."""
    if len(set(N)) < 3:
        return None
    center = sum(map(math.log, N)) / len(N)
    found = polynomial([math.log(n) - center for n in N], loss)
    if found is None or found[2] <= 0:
        return None
    c, b, a = found
    best = math.exp(center - b / (2 * a))
    return (best, c - b * b / (4 * a)) if min(N) <= best <= max(N) else None


def power(x, y):
    """k, a of y = k x^a, by least squares of logarithms."""
    x, y = [math.log(v) for v in x], [math.log(v) for v in y]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    a = (sum((u - mean_x) * (v - mean_y) for u, v in zip(x, y)) / sum((u - mean_x)**2 for u in x))
    return math.exp(mean_y - a * mean_x), a


def linear_fit(runs, alpha, beta):
    """E, A, B of least relative squares for these exponents; the sum of squares, and they."""
    terms = [[1 / run["loss"], run["N"]**-alpha / run["loss"], run["D"]**-beta / run["loss"]] for run in runs]
    matrix = [[sum(t[i] * t[j] for t in terms) for j in range(3)] for i in range(3)]
    found = solve(matrix, [sum(t[i] for t in terms) for i in range(3)])
    if found is None or min(found) < 0:
        return float("inf"), None
    return sum((sum(c * x for c, x in zip(found, t)) - 1)**2 for t in terms), found


def fit(runs):
    """The law of runs with "N", "D" and "loss": for given exponents it is linear, and these are searched on grids that narrow."""
    best, center, width = (float("inf"), None, None), (0.5, 0.5), 0.45
    for _ in range(16):
        for i in range(-8, 9):
            for k in range(-8, 9):
                exponents = (center[0] + width * i / 8, center[1] + width * k / 8)
                if min(exponents) < 0.02:
                    continue
                squares, found = linear_fit(runs, *exponents)
                if squares < best[0]:
                    best = (squares, exponents, found)
        if best[1] is None:
            return None
        center, width = best[1], width / 2
    (alpha, beta), (E, A, B) = best[1], best[2]
    return {"E": E, "A": A, "alpha": alpha, "B": B, "beta": beta}


def loss_of(law, run):
    return law["E"] + law["A"] / run["N"]**law["alpha"] + law["B"] / run["D"]**law["beta"]


def write(path, law):
    """For `ch23_planner --compute C --law FILE`."""
    path.write_text(json.dumps(law, indent=1) + "\n")


def again(fit_to, runs, times=100):
    """What fit_to says of runs drawn with replacement, in the same order at every call; not where it is None."""
    draw = random.Random(1)
    found = [fit_to([draw.choice(runs) for _ in runs]) for _ in range(times)]
    return [one for one in found if one]


def middle(values):
    """The middle 80%."""
    values = sorted(values)
    return values[len(values) // 10], values[-1 - len(values) // 10]
