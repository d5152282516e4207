"""PromQL that several panels need.

In the queries of the dashboards, `@node` and `@cgroups` between braces stand for the matchers that the variables at the top
of a dashboard make. Names of labels that OTLP changes are variables as well (`$cgroup_label`): see `variables`.
"""

RATE = "$__rate_interval"
# The whole time that is shown, as seen from its end: who is in the picture does not change from point to point.
WHOLE = "$__range] @ end("

NODE = 'cluster=~"$cluster",instance=~"$instance"'
CGROUPS = NODE + ',$namespace_label=~"$namespace",$pod_label=~"$pod",$cgroup_label=~"$cgroup"'

# What each series is called by: `who` is the pod, container, … that "Group by" asks for, and the cgroup where there is none.
WHO_LEGEND = "{{$namespace_label}} {{$pod_label}} {{who}} {{instance}}"


def expand(query):
    """The matchers in the place of their short forms."""
    return query.replace("@node", NODE).replace("@cgroups", CGROUPS)


def selector(metric, matchers):
    return f"{metric}{{{matchers}}}"


def rate(metric, matchers="@node", over=RATE):
    closing = ")" if over == WHOLE else "]"
    return f"rate({selector(metric, matchers)}[{over}{closing})"


def total(metric, by="", matchers="@node", over=RATE):
    """The rate, added up by some labels, or altogether."""
    return f"sum{f' by ({by}) ' if by else ''}({rate(metric, matchers, over)})"


def named(expression):
    """Each series of a cgroup with the label `who`: the label that `$group_label` names, else the cgroup."""
    return (
        f'label_replace(label_replace({expression}, "who", "$1", "$cgroup_label", "(.+)"), "who", "$1", "$group_label", "(.+)")'
    )


def by_who(expression, more=""):
    """Series of cgroups added up by what "Group by" asks for."""
    return f"sum by ($by,who{',' + more if more else ''}) ({named(expression)})"


def who(metric, matchers="@cgroups", over=RATE, more=""):
    return by_who(rate(metric, matchers, over), more)


def top(of, rank=None):
    """Of the series that the function makes, those that are the largest over the whole time, or those whose `rank` is."""
    return f"{of(RATE)}\n  and topk($top, {(rank or of)(WHOLE)})"


def ratio(above, below, factor=""):
    """A quotient: nothing at all where nothing happened, rather than a division by zero."""
    return f"{factor}{above}\n  / ({below} > 0)"


def quantile(q, metric, by="", matchers="@node", naming=lambda expression: expression):
    """By classic buckets, or else by native histograms: one of the two is there."""
    classic = f"sum by (le{',' + by if by else ''}) ({naming(rate(metric + '_bucket', matchers))})"
    native = f"sum{f' by ({by}) ' if by else ''}({naming(rate(metric, matchers))})"
    return f"histogram_quantile({q}, {classic})\n  or histogram_quantile({q}, {native})"


def quantile_who(q, metric, matchers="@cgroups", more=""):
    return quantile(q, metric, "$by,who" + (f",{more}" if more else ""), matchers, named)


def observations(metric, by="", matchers="@node", over=RATE):
    """How often a histogram was added to, per second."""
    by = f" by ({by}) " if by else ""
    return f"sum{by}({rate(metric + '_count', matchers, over)})\n  or sum{by}(histogram_count({rate(metric, matchers, over)}))"


def sums(metric, by="", matchers="@node", naming=lambda expression: expression, over=RATE):
    """What was added to a histogram, per second."""
    by = f" by ({by}) " if by else ""
    return (
        f"sum{by}({naming(rate(metric + '_sum', matchers, over))})\n"
        f"  or sum{by}({naming('histogram_sum(' + rate(metric, matchers, over) + ')')})"
    )


def most(expression, rank):
    """Of these, the ones whose `rank`, a function of the time that rates are taken over, is largest over the whole time."""
    return f"({expression})\n  and topk($top, {rank(WHOLE)})"
