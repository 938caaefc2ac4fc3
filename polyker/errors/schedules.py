"""Catalogue of the schedule's and the gathers' errors (PK5xx); legality's rows stand in polyker.schedule.legality.prove."""

from __future__ import annotations

from polyker.errors.base import GatherError, ScheduleError, StepNameError, register

GATHERED = register(
    "PK510",
    GatherError,
    "the gathered index `{index}` is {found}out of range: dimension {dimension} of `{tensor}` has {extent} elements",
    "gathered indices count from 0 and are below the extent; negative ones are not taken from the end",
)

# Steps that cannot be applied; whether they are legal where they can be is PK501-PK508.
NO_STATEMENT = register(
    "PK520",
    ScheduleError,
    "the schedule has no statement `{statement}`; it has {known}",
    "print the schedule: its statements stand in braces beside each loop",
)
NO_LOOP = register(
    "PK521",
    ScheduleError,
    "statement {statement} has no loop `{loop}`; it has {known}",
    "name a loop by its label as the printed schedule shows it",
)
SAME_LABEL = register(
    "PK522",
    ScheduleError,
    "statement {statement} has more than one loop `{loop}`, one inside the other",
    "apply the step before the one that made the second loop",
)
NOT_ONE_BAND = register(
    "PK523",
    ScheduleError,
    "the loops {loops} of {statement} are not one directly inside the other",
    "distribute the loops between them first, or name fewer loops",
)
BAD_SIZE = register(
    "PK524",
    ScheduleError,
    "{size} is no size for the loop `{loop}`",
    "a size is a whole number from {least} to {most}",
)
NOT_SERIAL = register(
    "PK525",
    ScheduleError,
    "the loop `{loop}` of {statement} is {kind} already, so it cannot be cut",
    "tile first, then unroll or vectorise the inner loop",
)
BAD_ORDER = register(
    "PK526",
    ScheduleError,
    "an order names two loops or more, each once: {loops}",
    "interchange(schedule, statement, ('j', 'i')) makes j the outer loop of i and j",
)
NOT_ADJACENT = register(
    "PK527",
    ScheduleError,
    "{first} and {second} do not stand in two children of a sequence, one right after the other",
    "fuse neighbours; what stands between them has to be fused first, or moved",
)
NOT_ALIKE = register(
    "PK528",
    ScheduleError,
    "the loops of {first} and {second} cannot become one: {reason}",
    "fuse loops of one kind that hold different statements, as many as both sides have",
)
NO_SEQUENCE = register(
    "PK529",
    ScheduleError,
    "the loop `{loop}` of {statement} has no sequence of statements directly inside",
    "distribute the innermost loop that several statements share",
)
NESTED_VECTOR = register(
    "PK530",
    ScheduleError,
    "the loop `{loop}` of {statement} is around or inside the vector loop `{other}`",
    "a statement runs in one vector loop",
)
TOO_LONG = register(
    "PK531",
    ScheduleError,
    "unrolling `{loop}` gives {count} copies of statements, more than {limit}",
    "unroll by a smaller factor",
)
NEEDS_COPY = register(
    "PK532",
    ScheduleError,
    "{tensor} is an {role}, so its buffer needs a copy from or to the caller's array",
    "only temporaries are promoted; give the copy a statement of its own, and promote what it writes",
)
NO_TENSOR = register(
    "PK533",
    ScheduleError,
    "the program has no tensor `{tensor}`; its temporaries are {known}",
    "use the tensor's label, or its generated name as the printed schedule shows it",
)
UNBOUNDED = register(
    "PK534",
    ScheduleError,
    "the elements of {tensor} that one run of this loop uses have no constant bound in dimension {dimension}",
    "tile the loops with constant sizes, and promote inside the tile",
)
BIG_BUFFER = register(
    "PK535",
    ScheduleError,
    "the buffer of {tensor} would take {size} bytes, more than {limit}",
    "promote it further in, or tile smaller",
)
PROMOTED = register(
    "PK536",
    ScheduleError,
    "{tensor} is in a buffer already",
    "a temporary is promoted once, at the loop that its buffer is to live in",
)
UNUSED = register(
    "PK537",
    ScheduleError,
    "no statement inside the loop `{loop}` of {statement} uses {tensor}",
    "promote a tensor at a loop around the statements that write and read it",
)
UNKNOWN_STEP = register(
    "PK538",
    ScheduleError,
    "there is no step `{name}` with the arguments {arguments}",
    "the steps are {known}",
)

BAD_OFFSET = register(
    "PK539",
    ScheduleError,
    "{value} is no number of iterations to move the loop `{loop}` by",
    "it is a whole number other than 0, from -{most} to {most}",
)

# Schedules as users edit them (polyker.edit), in the user's names.
UNKNOWN_STATEMENT = register(
    "PK540",
    ScheduleError,
    "the schedule has no statement `{statement}`; it has {known}",
    "a statement is called by the tensor that it defines, as the printed schedule shows it",
)
UNKNOWN_LOOP = register(
    "PK541",
    ScheduleError,
    "{place} has no loop `{loop}`; {known}",
    "name a loop as the printed schedule shows it",
)
SEVERAL = register(
    "PK542",
    ScheduleError,
    "several statements have the loop `{loop}`, each its own: {choices}",
    'say whose, such as s["{first}"].{step}(...)',
)
BAD_STEP = register(
    "PK543",
    ScheduleError,
    "{reason} in the step `{step}`",
    "the step is written {form}",
)
NO_STEP = register(
    "PK551",
    StepNameError,
    "a schedule has no step `{step}`",
    "the steps are {known}",
)
BAD_TEXT = register(
    "PK544",
    ScheduleError,
    "this is no schedule: {reason}",
    "Schedule.from_json takes what Schedule.to_json gave, as text or dict, with the operator that it is for",
)
OTHER_SCHEDULE = register(
    "PK545",
    ScheduleError,
    "this schedule is for {what} {own}, not for {wanted}",
    "make it with op.schedule(...) of the same operator, types and options; its steps can be replayed with Schedule.from_json",
)
NO_BUFFER = register(
    "PK546",
    ScheduleError,
    "{tensor} cannot have a copy at the loop `{loop}`: {reason}",
    "a copy is of what statements inside a loop read at affine places, or write",
)
NOT_DRAWN = register(
    "PK547",
    ScheduleError,
    "the instances of `{statement}` cannot be listed: {reason}",
    "a picture has up to {most} instances: take small, fixed sizes; the order is the same for large ones",
)
NO_ROLE = register(
    "PK548",
    ScheduleError,
    "a loop cannot be carried out by {role!r}",
    'write "block.x", "thread.y", or "thread.x(32)" with the number of threads, 1024 at most, where the loop does not say it',
)
NOT_SWIZZLED = register(
    "PK550",
    ScheduleError,
    "{tensor} cannot have swizzle={swizzle} at the loop `{loop}`: {reason}",
    "rows are the last dimension of the layout: a power of two elements, 32 bytes or more; others take pad=",
)
ONLY_GPU = register(
    "PK549",
    ScheduleError,
    "the step `{step}` is for a GPU, and this schedule is for `{target}`",
    'make the schedule for a GPU: op.schedule(..., target="cuda")',
)
