"""What tests ask of plans."""


def stages(plan):
    """The names of a plan's stages, each before its inputs."""
    found = [plan["stage"]]
    for inner in [plan.get("inputStage"), *plan.get("inputStages", [])]:
        if inner:
            found += stages(inner)
    return found


def winning(cursor):
    """The plan that answers a find."""
    return cursor.explain()["queryPlanner"]["winningPlan"]
