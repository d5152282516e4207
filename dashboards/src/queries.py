"""PromQL that several panels use.

In the queries of the dashboards, `@node` and `@cgroups` in braces are replaced by matchers for the variables at the top of a
dashboard. Labels whose names differ with OTLP are variables too (`$cgroup_label`): see `variables`.
"""

RATE = "$__rate_interval"
# The whole time range, evaluated at its end, so that the set of series does not change within a panel.
WHOLE = "$__range] @ end("

NODE = 'cluster=~"$cluster",instance=~"$instance"'
CGROUPS = NODE + ',$namespace_label=~"$namespace",$pod_label=~"$pod",$cgroup_label=~"$cgroup"'

# Legend of series. `who` is the pod, container, … selected in "Group by", or the cgroup if there is none.
WHO_LEGEND = "{{$namespace_label}} {{$pod_label}} {{who}} {{instance}}"


def expand(query):
    """Replaces the short forms of matchers."""
    return query.replace("@node", NODE).replace("@cgroups", CGROUPS)


def selector(metric, matchers):
    return f"{metric}{{{matchers}}}"


def rate(metric, matchers="@node", over=RATE):
    closing = ")" if over == WHOLE else "]"
    return f"rate({selector(metric, matchers)}[{over}{closing})"


def total(metric, by="", matchers="@node", over=RATE):
    """The sum of the rate, by labels or over all series."""
    return f"sum{f' by ({by}) ' if by else ''}({rate(metric, matchers, over)})"


def named(expression):
    """Adds the label `who` to each series of a cgroup: the label named by `$group_label`, otherwise the cgroup."""
    return (
        f'label_replace(label_replace({expression}, "who", "$1", "$cgroup_label", "(.+)"), "who", "$1", "$group_label", "(.+)")'
    )


def by_who(expression, more=""):
    """The sum of series of cgroups by the label selected in "Group by"."""
    return f"sum by ($by,who{',' + more if more else ''}) ({named(expression)})"


def who(metric, matchers="@cgroups", over=RATE, more=""):
    return by_who(rate(metric, matchers, over), more)


def top(of, rank=None):
    """The series of `of` that are the largest over the time range, or whose `rank` is the largest."""
    return f"{of(RATE)}\n  and topk($top, {(rank or of)(WHOLE)})"


def ratio(above, below, factor=""):
    """A quotient. It is absent if the denominator is zero."""
    return f"{factor}{above}\n  / ({below} > 0)"


def quantile(q, metric, by="", matchers="@node", naming=lambda expression: expression):
    """A quantile from classic buckets or from native histograms, whichever exists."""
    classic = f"sum by (le{',' + by if by else ''}) ({naming(rate(metric + '_bucket', matchers))})"
    native = f"sum{f' by ({by}) ' if by else ''}({naming(rate(metric, matchers))})"
    return f"histogram_quantile({q}, {classic})\n  or histogram_quantile({q}, {native})"


def quantile_who(q, metric, matchers="@cgroups", more=""):
    return quantile(q, metric, "$by,who" + (f",{more}" if more else ""), matchers, named)


def observations(metric, by="", matchers="@node", over=RATE):
    """Observations of a histogram per second."""
    by = f" by ({by}) " if by else ""
    return f"sum{by}({rate(metric + '_count', matchers, over)})\n  or sum{by}(histogram_count({rate(metric, matchers, over)}))"


def sums(metric, by="", matchers="@node", naming=lambda expression: expression, over=RATE):
    """The sum of observations of a histogram per second."""
    by = f" by ({by}) " if by else ""
    return (
        f"sum{by}({naming(rate(metric + '_sum', matchers, over))})\n"
        f"  or sum{by}({naming('histogram_sum(' + rate(metric, matchers, over) + ')')})"
    )


def most(expression, rank):
    """The series whose `rank`, a function of the range of rates, is the largest over the time range."""
    return f"({expression})\n  and topk($top, {rank(WHOLE)})"
