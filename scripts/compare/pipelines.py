"""Pictures of pipeline schedules, from what the stages of a run recorded of themselves."""

from look import INK, LINE, WIDTH, new_figure, svg_of

# Colors of each kind of work, for the first chunk of a stage and for the others.
SHADES = {"F": ["#4c78a8", "#8fb4da", "#2f5277", "#b9d2ea"],
          "B": ["#f28e2b", "#f9c086", "#b8640f", "#fbdcb9"],
          "I": ["#d1605e", "#eba7a5", "#9c3f3d", "#f5d0cf"],
          "W": ["#59a14f", "#9fd097", "#3a7032", "#cbe6c6"]}
KINDS = {"F": "forward", "B": "backward", "I": "backward, input gradients",
         "W": "backward, weight gradients"}


def span_of(timeline):
    """First begin and last end, in ms."""
    actions = [action for stage in timeline for action in stage]
    return min(a[3] for a in actions), max(a[4] for a in actions)


def longest(pipelines):
    """ms of the slowest: pictures of one scale can be compared."""
    return max(end - begin for begin, end in (span_of(p["timeline"]) for p in pipelines))


def draw_action(axes, stage, action, begin, inch):
    """A box with its micro-batch's number, where there is room; inch: how many ms wide it is."""
    kind, micro, chunk, start, end = action
    color = SHADES[kind][chunk % 4]
    axes.broken_barh([(start - begin, end - start)], (stage - 0.4, 0.8), facecolors=color,
                     edgecolors="white", linewidth=0.5)
    if end - start > 0.09 * len(str(micro)) * inch:
        axes.text((start + end) / 2 - begin, stage, str(micro), ha="center", va="center",
                  fontsize=8, color="white" if chunk % 2 == 0 else "black")


def legend(axes, timeline):
    """The kinds that occur; of several chunks, the shades of all."""
    from matplotlib.patches import Patch
    seen = sorted({(a[0], a[2]) for stage in timeline for a in stage},
                  key=lambda pair: ("FBIW".index(pair[0]), pair[1]))
    chunks = max(chunk for _, chunk in seen) + 1
    handles = [Patch(color=SHADES[kind][chunk % 4],
                     label=KINDS[kind] + (f", chunk {chunk}" if chunks > 1 else ""))
               for kind, chunk in seen]
    handles.append(Patch(facecolor=LINE, label="idle"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncol=len(handles),
                handlelength=1, handleheight=1, borderaxespad=0.2, columnspacing=1.2)


def picture(name, pipeline, scale):
    """A row for each stage; `scale` ms are as wide as the picture."""
    timeline = pipeline["timeline"]
    begin, end = span_of(timeline)
    stages = len(timeline)
    figure, axes = new_figure(0.72 + 0.34 * stages)
    for stage, actions in enumerate(timeline):
        axes.broken_barh([(0, end - begin)], (stage - 0.4, 0.8), facecolors=LINE)
        for action in actions:
            draw_action(axes, stage, action, begin, scale / (0.9 * WIDTH))
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)], color=INK)
    axes.set_ylim(stages - 0.5, -0.5)
    axes.set_xlim(0, 1.005 * scale)
    axes.xaxis.set_major_formatter("{x:g} ms")
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    legend(axes, timeline)
    return svg_of(figure, f"pipeline-{name}", f"What each stage of {name} does when")
