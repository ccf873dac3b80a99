"""Sentences of README.md and docs/ that quote results, and where each number in them comes from.

A number is `{STUDY/VARIANT COLUMN:FORM}`. COLUMN is one of results/STUDY/table.csv; `safe_seeds`
and `final_safe_seeds` count seeds; `violation@2008` is of one seed, `return@least`, `@largest` and
`@mean` of all, from summary.json; `exact.violation@2008` is of a final policy, `summary.seeds` one
number of summary.json. FORM is Python's, or M for millions. `docs/figures/tables.py` puts the
numbers into the pages.
"""

ENVIRONMENTS = {"icy-lake": ".3f", "point-goal": ".1f", "eco-ant": ".0f"}


def method_row(label: str) -> str:
    """A method on the environments of the paper's table: P, safe seeds, return; the same of its final
    policies."""
    cells = [f"| {label} |"]
    for name, form in ENVIRONMENTS.items():
        row = f"table1/{name}-{label.lower()}"
        cells.append(f"{{{row} violation:.3f}}, {{{row} safe_seeds:d}} of {{{row} seeds:d}},")
        cells.append(f"{{{row} reward:{form}}}; {{{row} final_violation:.3f}},")
        cells.append(f"{{{row} final_safe_seeds:d}}, {{{row} final_reward:{form}}} |")
    return " ".join(cells)


METHODS = tuple(map(method_row, ("Canary", "CPO", "CVaR-CPO", "CPPO", "PPO")))

SENTENCES = {
    "README.md": (
        "| [IcyLake](results/reliability/table.md), limit 5.5 | {reliability/canary seeds:d} × "
        "{reliability/canary steps:M} |"
        " {reliability/canary violation:.3f} | {reliability/canary safe_seeds:d} of "
        "{reliability/canary seeds:d} |"
        " {reliability/canary reward:.3f} ({reliability/canary lowest_reward:.3f}) |",
        "| [PointGoal](results/point-goal/README.md), limit 100, horizon 1000 | {point-goal/canary "
        "seeds:d} ×"
        " {point-goal/canary steps:M} | {point-goal/canary violation:.3f} | {point-goal/canary "
        "safe_seeds:d} of"
        " {point-goal/canary seeds:d} | {point-goal/canary reward:.1f} ({point-goal/canary "
        "lowest_reward:.1f}) |",
        "| [PointGoal2500](results/point-goal-2500/README.md), limit 100 | {point-goal-2500/canary "
        "seeds:d} ×"
        " {point-goal-2500/canary steps:M} | {point-goal-2500/canary violation:.3f} |"
        " {point-goal-2500/canary safe_seeds:d} of {point-goal-2500/canary seeds:d} |"
        " {point-goal-2500/canary reward:.1f} ({point-goal-2500/canary lowest_reward:.1f}) |",
        "| [EcoAnt](results/eco-ant/README.md), limit 150 | {eco-ant/canary seeds:d} × "
        "{eco-ant/canary steps:M} |"
        " {eco-ant/canary violation:.3f} | {eco-ant/canary safe_seeds:d} of {eco-ant/canary "
        "seeds:d} |"
        " {eco-ant/canary reward:.0f} ({eco-ant/canary lowest_reward:.0f}) |",
        "their exact violation probabilities, {reliability/canary exact.violation@least:.3f} to"
        " {reliability/canary exact.violation@largest:.3f} (",
        "gives P {icy-lake-canary/. summary.violation_probability:.3f}, return"
        " {icy-lake-canary/. summary.return_mean:.3f}, {icy-lake-canary/. summary.safe_seeds:d} of"
        " {icy-lake-canary/. summary.seeds:d} seeds safe",
        *METHODS,
    ),
    "docs/algorithms/cvar-cpo.md": (
        "it trained {methods/cvar-cpo steps_per_second:,.0f} steps per second, where Canary, with"
        " batches of 4000 steps instead of 1000, trained {methods/canary steps_per_second:,.0f} (",
    ),
    "docs/environments/eco_ant.md": (
        "trained {eco-ant/canary steps_per_second:,.0f} environment steps per second",
    ),
    "docs/environments/point_goal.md": (
        "{point-goal/canary safe_seeds:d} of {point-goal/canary seeds:d} seeds are safe, at P"
        " {point-goal/canary violation:.4f} and J {point-goal/canary reward:.1f} (",
    ),
    "docs/comparison.md": (
        "10 seeds of 4M steps ([table](../results/point-goal/table.csv)) |"
        " {point-goal/canary steps_per_second:,.0f} |",
        "beside other work ([table](../results/reliability/table.csv)) | {reliability/canary "
        "steps_per_second:,.0f} |",
    ),
    "docs/reproduction.md": (
        "those of CPO (largest P {before-shaping/methods/cpo exact.violation@largest:.4f}, J"
        " {before-shaping/methods/cpo exact.return@mean:.3f}) and CVaR-CPO"
        " ({before-shaping/methods/cvar-cpo exact.violation@largest:.4f},"
        " {before-shaping/methods/cvar-cpo exact.return@mean:.3f}) keep the limit on all five "
        "seeds too, and are richer than"
        " Canary's ({before-shaping/methods/canary exact.violation@largest:.4f},"
        " {before-shaping/methods/canary exact.return@mean:.3f}),",
        "{reliability/canary safe_seeds:d} of {reliability/canary seeds:d} seeds are safe, at P"
        " {reliability/canary violation:.4f} and J {reliability/canary reward:.3f}; the lowest J is"
        " {reliability/canary lowest_reward:.3f}. By dynamic programming all final policies keep P "
        "≤ ε"
        " ({reliability/canary exact.violation@least:.3f} to {reliability/canary "
        "exact.violation@largest:.3f}).",
        "4M steps): {point-goal/canary safe_seeds:d} of {point-goal/canary seeds:d} seeds are "
        "safe, at P"
        " {point-goal/canary violation:.4f} and J {point-goal/canary reward:.1f}; the lowest J is"
        " {point-goal/canary lowest_reward:.1f}. Seed 3808, the richest ({point-goal/canary "
        "return@3808:.1f}), has P"
        " {point-goal/canary violation@3808:.3f}.",
        "{methods/canary safe_seeds:d} of {methods/canary seeds:d} seeds of Canary are safe over "
        "the second half (P"
        " {methods/canary violation:.4f}, J {methods/canary reward:.3f}), {methods/cpo "
        "safe_seeds:d} of CPO"
        " ({methods/cpo violation:.4f}, {methods/cpo reward:.3f}) and {methods/cvar-cpo "
        "safe_seeds:d} of CVaR-CPO"
        " ({methods/cvar-cpo violation:.4f}, {methods/cvar-cpo reward:.3f}).",
        "Canary has P {point-goal-methods/canary violation:.4f} and J"
        " {point-goal-methods/canary reward:.1f} and is safe on"
        " {point-goal-methods/canary safe_seeds:d} of {point-goal-methods/canary seeds:d} seeds."
        " CPO ({point-goal-methods/cpo violation:.4f}, {point-goal-methods/cpo reward:.1f}) and"
        " CVaR-CPO ({point-goal-methods/cvar-cpo violation:.4f},"
        " {point-goal-methods/cvar-cpo reward:.1f}) earn more and are safe on"
        " {point-goal-methods/cpo safe_seeds:d} and {point-goal-methods/cvar-cpo safe_seeds:d}:",
        "keep the limit on {point-goal-methods/cpo final_safe_seeds:d} and"
        " {point-goal-methods/cvar-cpo final_safe_seeds:d} of the seeds, those of Canary on"
        " {point-goal-methods/canary final_safe_seeds:d}.",
        "J {point-goal-methods/ppo reward:.1f} at P {point-goal-methods/ppo violation:.4f}.",
        "CPO settles at {table1/icy-lake-cpo violation:.4f}, just above",
        "keep the limit on {table1/icy-lake-canary final_safe_seeds:d} of"
        " {table1/icy-lake-canary seeds:d} seeds at J {table1/icy-lake-canary exact.return@mean:.3f},"
        " those of CPO on {table1/icy-lake-cpo final_safe_seeds:d} at"
        " {table1/icy-lake-cpo exact.return@mean:.3f} and those of CVaR-CPO on"
        " {table1/icy-lake-cvar-cpo final_safe_seeds:d} at"
        " {table1/icy-lake-cvar-cpo exact.return@mean:.3f}.",
        "Canary is at P {table1/point-goal-canary violation:.3f} and J"
        " {table1/point-goal-canary reward:.1f}, CPO at {table1/point-goal-cpo violation:.3f} and"
        " {table1/point-goal-cpo reward:.1f};",
        "here P is {table1/icy-lake-canary-published violation:.3f} on average and"
        " {table1/icy-lake-canary-published safe_seeds:d} of"
        " {table1/icy-lake-canary-published seeds:d} seeds are safe,",
        "CPO has P {table1/icy-lake-cpo-published violation:.3f} and J"
        " {table1/icy-lake-cpo-published reward:.3f} (paper:",
        "(P {table1/icy-lake-cvar-cpo-published violation:.3f}, J"
        " {table1/icy-lake-cvar-cpo-published reward:.3f}; paper:",
        "Canary has P {table1/point-goal-canary-published violation:.3f} and J"
        " {table1/point-goal-canary-published reward:.1f}, about what PPO does.",
        "Canary has P {table1/eco-ant-canary-published violation:.3f} and J"
        " {table1/eco-ant-canary-published reward:.1f} over the second half",
        "P is {surrogate-units/icy-lake-step violation:.3f} and the jitter {surrogate-units/icy-lake-step jitter:.3f},"
        " where",
        "J is {surrogate-units/icy-lake-step reward:.3f} (paper: 0.67 ± 0.06) and"
        " {surrogate-units/icy-lake-step safe_seeds:d} of {surrogate-units/icy-lake-step seeds:d} seeds are safe",
        "P is {surrogate-units/point-goal-step violation:.3f} and J"
        " {surrogate-units/point-goal-step reward:.1f} in units of a step, where units of an episode"
        " have {surrogate-units/point-goal-episode violation:.3f} and"
        " {surrogate-units/point-goal-episode reward:.1f} and the paper 0.011 and 4.0.",
        "PPO earns {table1/point-goal-ppo reward:.1f} here",
        "only Canary is safe, on {table1/eco-ant-canary safe_seeds:d} of"
        " {table1/eco-ant-canary seeds:d} seeds, at P {table1/eco-ant-canary violation:.4f}, and of"
        " the constrained methods it earns the most,"
        " {table1/eco-ant-canary reward:.0f}: CPO has P {table1/eco-ant-cpo violation:.3f} and J"
        " {table1/eco-ant-cpo reward:.0f}, CVaR-CPO {table1/eco-ant-cvar-cpo violation:.3f} and"
        " {table1/eco-ant-cvar-cpo reward:.0f}.",
        "PPO, which knows no limit, earns {table1/eco-ant-ppo reward:.0f} at P"
        " {table1/eco-ant-ppo violation:.3f} (paper:",
        "CPPO falls over (J {table1/eco-ant-cppo reward:.0f}",
        "the whole preset is at P {ablation/default violation:.4f} and J {ablation/default "
        "reward:.1f}, on its way",
        "without it P is {ablation/without-second-moment violation:.4f}.",
        "(P {ablation/without-signal violation:.4f} without, at J {ablation/without-signal "
        "reward:.1f}, which",
        "(P {ablation/without-damping violation:.4f}, jitter {ablation/without-damping jitter:.3f} "
        "against {ablation/default jitter:.3f})",
        "J is {ablation/without-dead-zone reward:.1f} and"
        " {ablation/without-mixed-restoration reward:.1f} without them.",
        "(256-256 earn {ablation/without-small-networks reward:.1f} and train",
        "Of the final policies {methods/canary final_safe_seeds:d} of Canary,"
        " {methods/cpo final_safe_seeds:d} of CPO and {methods/cvar-cpo final_safe_seeds:d} of"
        " CVaR-CPO keep P ≤ ε, at J {methods/canary exact.return@mean:.3f},"
        " {methods/cpo exact.return@mean:.3f} and {methods/cvar-cpo exact.return@mean:.3f}; the"
        " largest exact P is {methods/canary exact.violation@largest:.4f},"
        " {methods/cpo exact.violation@largest:.4f} and"
        " {methods/cvar-cpo exact.violation@largest:.4f}.",
        "12M steps): {point-goal-2500/canary safe_seeds:d} of {point-goal-2500/canary seeds:d} "
        "seeds are safe, at P"
        " {point-goal-2500/canary violation:.4f} and J {point-goal-2500/canary reward:.1f}; the "
        "lowest J is"
        " {point-goal-2500/canary lowest_reward:.1f}.",
        "at 0.001 {small-epsilon/canary-0.005 safe_seeds:d} and"
        " {small-epsilon/canary-0.001 safe_seeds:d} of five seeds of Canary are safe over the second"
        " half, at J {small-epsilon/canary-0.005 reward:.3f} and"
        " {small-epsilon/canary-0.001 reward:.3f}, because",
        "its P is {small-epsilon/cpo-0.005 violation:.4f} and"
        " {small-epsilon/cpo-0.001 violation:.4f}, and no seed is safe.",
        "on all ten seeds, at J {small-epsilon/unshaped-0.005 reward:.3f} and"
        " {small-epsilon/unshaped-0.001 reward:.3f}:",
        "10M steps): {eco-ant/canary safe_seeds:d} of {eco-ant/canary seeds:d} seeds are safe, at P"
        " {eco-ant/canary violation:.4f} and J {eco-ant/canary reward:.0f}; the lowest J is"
        " {eco-ant/canary lowest_reward:.0f}.",
        "P is {epsilon-sweep/unshaped-0.02 below_threshold:.0f} times below ε at 0.02 and"
        " {epsilon-sweep/unshaped-0.1 below_threshold:.1f} times at 0.1; with the shaped one"
        " {epsilon-sweep/shaped-0.02 below_threshold:.1f} times at 0.02 and"
        " {epsilon-sweep/shaped-0.05 below_threshold:.1f} times at 0.05.",
        "Limit 3.5: {elsewhere/limit-3.5 safe_seeds:d} of {elsewhere/limit-3.5 seeds:d} seeds are "
        "safe, at P"
        " {elsewhere/limit-3.5 violation:.3f} and J {elsewhere/limit-3.5 reward:.3f}, and"
        " {elsewhere/limit-3.5 final_safe_seeds:d} of {elsewhere/limit-3.5 seeds:d} final policies "
        "(seeds 4205 and 4208 end at"
        " {elsewhere/limit-3.5 exact.violation@4205:.3f} and {elsewhere/limit-3.5 "
        "exact.violation@4208:.3f}):",
        "horizon 200, seeds 4900-4909: {elsewhere/8x8 safe_seeds:d} of {elsewhere/8x8 seeds:d} seeds"
        " are safe, at P {elsewhere/8x8 violation:.3f} and J {elsewhere/8x8 reward:.3f}; the lowest J"
        " is {elsewhere/8x8 lowest_reward:.3f}, and {elsewhere/8x8 final_safe_seeds:d} of"
        " {elsewhere/8x8 seeds:d} final policies are safe.",
        "6M steps of the same settings {elsewhere/hard-lake safe_seeds:d} of"
        " {elsewhere/hard-lake seeds:d} seeds are safe over the second half, and so are"
        " {elsewhere/hard-lake final_safe_seeds:d} final policies, at J"
        " {elsewhere/hard-lake exact.return@least:.2f} or more",
    ),
}
