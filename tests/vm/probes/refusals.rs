//! Invalid probes: each is reported with its reason, and the valid ones count.

use std::collections::HashSet;

use perf_exporter::host::Roots;
use perf_exporter::probe::kallsyms;

use super::{GETPPID, kprobes, service};
use crate::advance;
use crate::support::worker::{Work, Worker};

/// Returns the name of a function that the kernel forbids to probe, because the probe mechanism itself uses it.
fn forbidden_function() -> String {
    let roots = Roots::default();
    let forbidden = kallsyms::blacklist(&roots).unwrap();
    let known = kallsyms::functions(&roots, usize::MAX).unwrap();
    let forbidden: HashSet<&str> = forbidden.iter().map(|name| &**name).collect();
    let mut named = known.iter().map(|function| &*function.name);
    named.find(|name| forbidden.contains(name)).unwrap().to_owned()
}

#[test]
fn each_probe_that_cannot_be_says_why_and_the_others_count() {
    let Some(_counters) = kprobes() else { return };
    let forbidden = forbidden_function();
    let mut service = service(
        &format!(
            "probes:\n  \
             unknown: {{kprobe: tcp_sendmsgs}}\n  \
             forbidden: {{kprobe: {forbidden}}}\n  \
             nameless: {{kprobe: tcp_sendmsg, arguments: [sise], labels: [sise]}}\n  \
             memberless: {{kprobe: tcp_sendmsg, arguments: [\"p=sk->__sk_common.skc_port\"], labels: [p]}}\n  \
             misfiltered: {{kprobe: tcp_sendmsg, arguments: [size], filter: \"size ~ \\\"x\\\"\"}}\n  \
             unregistered: {{kprobe: tcp_sendmsg, arguments: [\"x=%none\"], labels: [x]}}\n  \
             inside: {{kprobe: vfs_read+1, arguments: [\"x=$comm\"], labels: [x]}}\n  \
             asks: {{kprobe: {GETPPID}}}\n"
        ),
        "",
    );
    service.has_logged(&[
        "the kernel has no function tcp_sendmsgs; did you mean tcp_sendmsg?",
        &format!("the kernel does not allow a probe in {forbidden}"),
        "no parameter sise in int tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size); did you mean size?",
        "struct sock_common has no member skc_port; did you mean skc_dport?",
        "size is not a string, at \"\\\"x\\\"\"; write a number without quotes",
        "the kernel has no register %none",
    ]);
    // Where all instructions have one length, such an address is rejected for another reason.
    if cfg!(target_arch = "x86_64") {
        service.has_logged(&["vfs_read+1 is in the middle of an instruction"]);
    }
    let mut worker = Worker::start("asks");
    let before = service.metrics();
    worker.does(Work::Getppid(100));
    assert_eq!(advance(&before, &service.metrics(), "perf_probe_asks_total", &[]), 100.0);
}
