//! The program pushes the same metrics that it serves.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric, number_data_point};
use perf_exporter::config::push::Protocol;
use rustix::process::{Pid, Signal, kill_process};

use crate::receiver::{Received, Receiver, Tls};
use crate::support::cgroup::TestCgroup;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

/// Returns the values of a counter by one of its attributes.
fn counted(received: &Received, name: &str, attribute: &str) -> BTreeMap<String, f64> {
    let metrics = received.body.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    let metric = metrics.flat_map(|scope| &scope.metrics).find(|metric| metric.name == name);
    let Some(metric::Data::Sum(sum)) = metric.and_then(|metric| metric.data.as_ref()) else {
        return BTreeMap::new();
    };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{sum:?}");
    let labelled = |point: &NumberDataPoint| {
        let pair = point.attributes.iter().find(|pair| pair.key == attribute)?;
        let label = match pair.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?}"),
        };
        let value = match point.value? {
            number_data_point::Value::AsInt(value) => value as f64,
            number_data_point::Value::AsDouble(value) => value,
        };
        Some((label, value))
    };
    sum.data_points.iter().filter_map(labelled).collect()
}

#[test]
fn what_is_pushed_are_the_values_of_a_scrape_of_the_same_collection() {
    if lacks(Feature::Software) || lacks(Feature::Cgroup) {
        return;
    }
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let (cgroup, mut worker) = (TestCgroup::new("pushed"), Worker::start("pushed"));
        cgroup.take(worker.pid());
        let receiver = Receiver::start(protocol, Tls::No);
        let (word, address) = match protocol {
            Protocol::Grpc => ("grpc", receiver.address),
            Protocol::Http => ("http/protobuf", receiver.address),
        };
        // Collections are made at the start and on request only.
        let mut service = Service::start(&format!(
            "collection: {{interval: 10m, freshness: 10m}}\nhistory: {{for: 0s}}\n\
             counters: {{os: {{events: [context-switches, task-clock], per: [cpu, cgroup]}}}}\n\
             cgroups: {{include: [\"{}\"]}}\nexport: {{otlp: {{endpoint: \"http://{address}\", protocol: {word}, \
             signals: [metrics], metrics: {{interval: 1s}}}}}}\n",
            cgroup.path()
        ));
        worker.does(Work::Naps(100));
        kill_process(Pid::from_child(&service.child), Signal::HUP).unwrap();
        service.has_logged(&["configuration reloaded"]);
        let last = || receiver.taken().last().cloned();
        let switches = "perf.cgroup.context_switches";
        let of_cgroup =
            |received: &Received| counted(received, switches, "perf.cgroup").get(cgroup.path()).copied();
        eventually("a push contains the counts of the work", || {
            last().and_then(|received| of_cgroup(&received)).filter(|count| *count >= 100.0)
        });
        // On a busy machine, the reload's collection can come before another one: the newest push is that of the newest collection.
        eventually("the newest push has the values of a scrape", || {
            let (served, pushed) = (service.metrics(), last()?);
            let is_the_same = |(exposed, name, label, attribute)| {
                let theirs: BTreeMap<String, f64> =
                    served.by(exposed, label).map(|(label, value)| (label.to_owned(), value)).collect();
                !theirs.is_empty() && counted(&pushed, name, attribute) == theirs
            };
            let metrics = [
                ("perf_cgroup_context_switches_total", switches, "cgroup", "perf.cgroup"),
                ("perf_cgroup_task_clock_seconds_total", "perf.cgroup.task_clock", "cgroup", "perf.cgroup"),
                ("perf_cpu_context_switches_total", "perf.cpu.context_switches", "cpu", "cpu.logical_number"),
                ("perf_cpu_task_clock_seconds_total", "perf.cpu.task_clock", "cpu", "cpu.logical_number"),
            ];
            metrics.into_iter().all(is_the_same).then_some(())
        });
    }
}
