use std::fs::File;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

use super::*;
use crate::event::Catalog;
use crate::host::CpuSet;
use crate::ring::{Consumer, Reader, RingBudget, Usage};
use crate::sys::fake::{FakeEvent, FakeKernel, FakePlace};
use crate::sys::scheduling::Urgency;
use crate::sys::{Fields, Rate, Sampling, Sideband, WAKE_UP};

fn sampling() -> Sampling {
    let (fields, sideband) = (Fields::default(), Sideband::default());
    Sampling { rate: Rate::Period(1), fields, sideband, ordered: true }
}

fn faults() -> Named {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
    catalog.resolve(&crate::config::profiled::one_event("page-faults").unwrap()).unwrap().remove(0)
}

fn holder() -> Attr {
    Attr::software(DUMMY, Some(sampling()), Start::Later)
}

/// Opens page faults on CPU 3, once for each of `purposes`.
fn open_for(
    kernel: &FakeKernel,
    budget: &mut Budget,
    open_targets: &[OpenTarget],
    holders: Vec<Attr>,
    purposes: &str,
) -> Opened<FakeEvent, char> {
    let event = faults();
    let events = purposes.chars().map(|of| (Attr::sampling(&event, sampling()), &event, of)).collect();
    let (facts, roots) = (&Facts::default(), &Roots::default());
    let mut context = Context { kernel, facts, roots, budget, board: &mut Board::default() };
    let request = Request { holders, events };
    RingSet::new("samples").open(RingId::of_cpu(3), open_targets, request, 8, &mut context)
}

/// Opens events on CPU 3. Returns the result and the failures.
fn opened(kernel: &FakeKernel, open_targets: &[OpenTarget]) -> Opened<FakeEvent, char> {
    open_for(kernel, &mut Budget::new(1024, 0, None), open_targets, vec![holder()], "f")
}

fn cpus() -> [OpenTarget; 1] {
    [OpenTarget::Cpus("3".parse().unwrap())]
}

/// Returns for each event whether it is a dummy event, its place, its inheritance, and its start.
fn found(kernel: &FakeKernel) -> Vec<(bool, FakePlace, Inherit, Start)> {
    let tells = |attr: &Attr| attr.selector.config[0] == DUMMY;
    let opened = kernel.opened();
    opened.iter().map(|at| (tells(&at.attr), at.place, at.attr.inherit, at.attr.start)).collect()
}

#[test]
fn threads_have_events_of_their_own_that_children_inherit() {
    let kernel = FakeKernel::new();
    let (opened, _) = opened(&kernel, &[OpenTarget::Threads(vec![7, 8])]);
    let on = |tid| FakePlace::ThreadOn { tid, cpu: 3 };
    let expected = [(true, 7), (true, 8), (false, 7), (false, 8)];
    let expected = expected.map(|(tells, tid)| (tells, on(tid), Inherit::Children, Start::Later));
    assert_eq!(found(&kernel), expected);
    let (writers, _) = opened.unwrap();
    assert_eq!(writers.descriptors(), 4);
    assert!(writers.inherited);
    assert_eq!(writers.into_events().count(), 4);
    assert!(kernel.opened().is_empty());
}

#[test]
fn the_events_of_a_cpu_cannot_be_inherited() {
    let (opened, _) = opened(&FakeKernel::new(), &cpus());
    assert!(!opened.unwrap().0.inherited);
}

#[test]
fn a_command_is_sampled_from_its_execve_on() {
    let kernel = FakeKernel::new();
    let (_opened, _) = opened(&kernel, &[OpenTarget::Command(9)]);
    let place = FakePlace::ThreadOn { tid: 9, cpu: 3 };
    let expected = [true, false].map(|tells| (tells, place, Inherit::Children, Start::OnExec));
    assert_eq!(found(&kernel), expected);
}

#[test]
fn cgroups_share_what_the_cpu_tells() {
    let kernel = FakeKernel::new();
    let here: CpuSet = "0-3".parse().unwrap();
    let elsewhere: CpuSet = "0".parse().unwrap();
    let cgroup = |cpus: &CpuSet| {
        let dir = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        OpenTarget::Cgroup { dir, path: "/a".into(), cpus: cpus.clone() }
    };
    let (_opened, _) = opened(&kernel, &[cgroup(&here), cgroup(&elsewhere), cgroup(&here)]);
    let [(true, FakePlace::Cpu(3), ..), (false, FakePlace::Cgroup { cpu: 3, .. }, ..), (false, ..)] =
        found(&kernel)[..]
    else {
        panic!("{:?}", found(&kernel))
    };
}

#[test]
fn an_event_of_a_cgroup_is_refused_with_the_path_and_by_the_rules_of_cgroups() {
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::ENOENT, |_, place, _| matches!(place, FakePlace::Cgroup { .. }));
    let dir = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let target = OpenTarget::Cgroup { dir, path: "/a".into(), cpus: "3".parse().unwrap() };
    let (none, refused) = opened(&kernel, &[target]);
    let [Refused { event: Some('f'), refusal }] = &refused[..] else { panic!("{refused:?}") };
    assert!(none.is_none());
    assert_eq!((&*refusal.target, refusal.errno), ("cgroup /a on cpu 3", Some(Errno::ENOENT)));
    assert_eq!(refusal.reason, "perf events cannot use this cgroup hierarchy");
}

#[test]
fn threads_that_have_ended_are_left_out_and_those_of_others_are_refused() {
    let kernel = FakeKernel::new();
    let of =
        |tid| move |_: &Attr, place, _| matches!(place, FakePlace::ThreadOn { tid: at, .. } if at == tid);
    kernel.refuse(Errno::ESRCH, of(7));
    let open_targets = [OpenTarget::Threads(vec![7, 8])];
    let (some, refused) = opened(&kernel, &open_targets);
    assert_eq!((some.map(|(writers, _)| writers.descriptors()), refused.len()), (Some(2), 0));
    kernel.refuse(Errno::EACCES, of(8));
    let (none, refused) = opened(&kernel, &open_targets);
    assert!(none.is_none());
    let Refusal { target, errno, .. } = &refused[0].refusal;
    assert_eq!((&**target, *errno), ("thread 8 on cpu 3", Some(Errno::EACCES)));
}

#[test]
fn a_ring_that_cannot_be_made_gives_its_descriptors_back() {
    let kernel = FakeKernel::new();
    kernel.limit_rings(0);
    let mut budget = Budget::new(1024, 0, None);
    let (none, refused) = open_for(&kernel, &mut budget, &cpus(), vec![holder()], "f");
    assert!(none.is_none() && kernel.opened().is_empty());
    assert_eq!(budget.used, 0);
    assert_eq!((refused.len(), refused[0].event), (1, None));
    let Refusal { event, target, errno, .. } = &refused[0].refusal;
    assert_eq!((&**event, &**target, *errno), ("samples", "cpu 3", Some(Errno::EPERM)));
}

/// A consumer that keeps a ring and the sizes of all its rings, and reports a given usage.
struct Kept<R> {
    usage: Usage,
    pages: Vec<usize>,
    /// Number of rings that it had to drop.
    removed: usize,
    memory: Option<R>,
}

impl<R> Kept<R> {
    fn new(memory: R) -> Self {
        Self { usage: Usage::default(), pages: vec![], removed: 0, memory: Some(memory) }
    }
}

impl<R: sys::Ring> Consumer<R> for Kept<R> {
    fn remove(&mut self, ring: RingId) {
        assert_eq!(ring, RingId::of_cpu(3));
        self.removed += 1;
        self.memory = None;
    }

    fn add(&mut self, ring: RingId, memory: R) {
        assert_eq!(ring, RingId::of_cpu(3));
        self.pages.push(memory.size() / 4096);
        self.memory = Some(memory);
    }

    fn usage(&mut self, _: RingId) -> Usage {
        self.usage.take()
    }
}

#[test]
fn a_ring_grows_each_time_that_it_lost_more_until_the_budget_or_the_kernel_ends_it() {
    for (budget, kernel_gives, grown) in [(256, 1 << 20, vec![32, 128, 256]), (256, 64, vec![32, 64])] {
        let kernel = FakeKernel::new();
        kernel.limit_rings(kernel_gives);
        let (opened, _) = opened(&kernel, &cpus());
        let (writers, made) = opened.unwrap();
        let mut set = RingSet::new("samples");
        set.budget = RingBudget { most: budget, bound_by_kernel: false };
        let mut kept = Kept::new(set.add(RingId::of_cpu(3), writers, made));
        set.grow(&mut kept);
        assert!(kept.pages.is_empty(), "nothing was lost");
        for lost in 1..9 {
            kept.usage.lost = lost;
            set.grow(&mut kept);
            set.grow(&mut kept);
        }
        assert_eq!(kept.pages, grown);
    }
}

#[test]
fn a_ring_grows_before_it_loses_records() {
    let (opened, _) = opened(&FakeKernel::new(), &cpus());
    let (writers, made) = opened.unwrap();
    let mut set = RingSet::new("samples");
    set.budget = RingBudget { most: 64, bound_by_kernel: false };
    let mut kept = Kept::new(set.add(RingId::of_cpu(3), writers, made));
    let half = 4 * rustix::param::page_size();
    let full = 2 * half;
    for (most, grown) in
        [(half, &[][..]), (full, &[]), (half + 8, &[32]), (half + 8, &[32]), (5 * half, &[32, 64])]
    {
        kept.usage.most = most;
        set.grow(&mut kept);
        assert_eq!(kept.pages, grown);
    }
}

/// Returns a set with the ring of CPU 3, of 8 pages and at most `most`, and its consumer.
fn growing(
    kernel: &FakeKernel,
    most: usize,
) -> (RingSet<RingWriters<FakeEvent, char>>, Kept<<FakeEvent as Event>::Ring>) {
    let (writers, made) = opened(kernel, &[OpenTarget::Threads(vec![7, 8])]).0.unwrap();
    let mut set = RingSet::new("samples");
    set.budget = RingBudget { most, bound_by_kernel: false };
    let memory = set.add(RingId::of_cpu(3), writers, made);
    (set, Kept::new(memory))
}

#[test]
fn a_ring_that_is_nearly_full_waits_for_its_report_of_losses_before_it_grows() {
    let bytes = 8 * rustix::param::page_size();
    for (most, grows) in [(bytes / 16 * 15, true), (bytes / 16 * 15 + 8, false)] {
        let (mut set, mut kept) = growing(&FakeKernel::new(), 64);
        kept.usage.most = most;
        set.grow(&mut kept);
        assert_eq!(kept.pages, if grows { &[32][..] } else { &[] }, "{most} bytes of {bytes}");
    }
}

#[test]
fn each_loss_enlarges_a_ring_once() {
    let (mut set, mut kept) = growing(&FakeKernel::new(), 1 << 10);
    for (lost, pages) in [(1, &[32][..]), (1, &[32]), (4, &[32, 128]), (4, &[32, 128]), (5, &[32, 128, 512])]
    {
        kept.usage.lost = lost;
        set.grow(&mut kept);
        assert_eq!((&kept.pages[..], kept.removed), (pages, pages.len()));
    }
}

#[test]
fn a_ring_of_the_maximum_size_that_lost_nothing_grows_once_there_is_more_memory() {
    let (mut set, mut kept) = growing(&FakeKernel::new(), 8);
    for (most, pages) in [(8, &[][..]), (32, &[32])] {
        set.budget.most = most;
        kept.usage.most = 5 * rustix::param::page_size();
        set.grow(&mut kept);
        assert_eq!((&kept.pages[..], kept.removed), (pages, pages.len()));
    }
}

/// Names of logged events.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<&'static str>>>);

impl<S: tracing::Subscriber> Layer<S> for Logged {
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        self.0.lock().unwrap().push(event.metadata().name());
    }
}

#[test]
fn losses_at_the_maximum_size_are_logged_once_for_each_maximum_and_the_ring_grows_once_there_is_more_memory()
{
    let (mut set, mut kept) = growing(&FakeKernel::new(), 8);
    let logged = Logged::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(logged.clone()), || {
        for (lost, most, pages, warnings) in
            [(1, 8, &[][..], 1), (1, 8, &[], 1), (2, 8, &[], 1), (3, 32, &[32], 1), (4, 32, &[32], 2)]
        {
            set.budget.most = most;
            kept.usage.lost = lost;
            set.grow(&mut kept);
            let names = logged.0.lock().unwrap();
            let full = names.iter().filter(|&&name| name == "perf_exporter.ring.full").count();
            assert_eq!((&kept.pages[..], full), (pages, warnings), "{lost} lost, at most {most} pages");
        }
    });
}

#[test]
fn a_ring_that_cannot_be_replaced_is_given_up() {
    let kernel = FakeKernel::new();
    let (mut set, mut kept) = growing(&kernel, 64);
    kernel.limit_rings(0);
    for lost in 1..4 {
        kept.usage.lost = lost;
        set.grow(&mut kept);
        assert_eq!((kept.removed, kept.pages.len()), (1, 0));
    }
}

#[test]
fn all_events_write_into_the_ring_of_one_event_also_after_it_grew() {
    let kernel = FakeKernel::new();
    let (mut set, mut kept) = growing(&kernel, 64);
    for pages in [0, 1] {
        let opened = kernel.opened();
        let outputs: Vec<Option<u64>> = opened.iter().map(|event| event.output).collect();
        assert_eq!(outputs, [None, Some(opened[0].id()), Some(opened[0].id()), Some(opened[0].id())]);
        assert_eq!(kept.pages.len(), pages);
        kept.usage.lost += 1;
        set.grow(&mut kept);
    }
}

#[test]
fn rings_that_are_open_or_were_refused_are_not_missing() {
    let (kernel, mut board) = (FakeKernel::new(), Board::default());
    let (writers, made) = opened(&kernel, &cpus()).0.unwrap();
    let mut set = RingSet::new("samples");
    drop(set.add(RingId::of_cpu(3), writers, made));
    let refusal = no_descriptors(7).refusal(&"samples".into(), "cpu 1", None);
    set.refuse(RingId::of_cpu(1), board.add(&"default".into(), Scope::CPU, refusal));
    let online: CpuSet = "0-3".parse().unwrap();
    assert_eq!(set.missing(&online, 1), [0, 2].map(RingId::of_cpu));
    let second = |cpu| RingId { cpu, number: 1 };
    let [zero, two] = [0, 2].map(RingId::of_cpu);
    assert_eq!(set.missing(&online, 2), [zero, second(0), second(1), two, second(2), second(3)]);
    assert_eq!(set.outside(&"0-2".parse().unwrap()), [RingId::of_cpu(3)]);
    set.remove_refusals(&"0".parse().unwrap(), &mut board);
    assert_eq!(set.missing(&online, 1), [0, 1, 2].map(RingId::of_cpu));
    assert_eq!(board.lines().count(), 0);
}

#[test]
fn events_are_opened_only_if_the_budget_has_room_for_all_of_them() {
    // Two threads: each has one dummy event, and one event for each of three purposes.
    let open_targets = [OpenTarget::Threads(vec![7, 8])];
    for (limit, opens) in [(8, true), (7, false)] {
        let (kernel, mut budget) = (FakeKernel::new(), Budget::new(1 << 20, 0, Some(limit)));
        let (writers, refused) = open_for(&kernel, &mut budget, &open_targets, vec![holder()], "abc");
        assert_eq!((writers.is_some(), kernel.opened().len()), (opens, if opens { 8 } else { 0 }));
        assert_eq!(budget.has_room_for(1), !opens, "open events use descriptors of the budget");
        let refused: Vec<_> = refused.into_iter().map(|refused| refused.refusal.cause).collect();
        assert_eq!(refused, if opens { vec![] } else { vec![Cause::Exhausted] });
    }
}

#[test]
fn nothing_is_opened_where_no_event_is_requested_or_no_target_is_on_the_cpu() {
    let (kernel, mut budget) = (FakeKernel::new(), Budget::new(1024, 0, None));
    let (none, refused) = open_for(&kernel, &mut budget, &cpus(), vec![holder()], "");
    assert!(none.is_none() && refused.is_empty());
    let (none, refused) = opened(&kernel, &[OpenTarget::Cpus("0-2".parse().unwrap())]);
    assert!(none.is_none() && refused.is_empty());
    assert_eq!(kernel.open_calls(), 0);
}

#[test]
fn another_holder_is_tried_only_if_the_kernel_does_not_know_a_field_of_the_first_one() {
    let first = Attr { ordered: true, ..holder() };
    let is_first = |attr: &Attr, _: FakePlace, _: bool| attr.ordered;
    for (errno, holder_opened) in [
        (None, Some(true)),
        (Some(Errno::EINVAL), Some(false)),
        (Some(Errno::E2BIG), Some(false)),
        (Some(Errno::EMFILE), None),
    ] {
        let (kernel, mut budget) = (FakeKernel::new(), Budget::new(1024, 0, None));
        errno.into_iter().for_each(|errno| kernel.refuse(errno, is_first));
        let holders = vec![first.clone(), holder()];
        let (writers, refused) = open_for(&kernel, &mut budget, &cpus(), holders, "f");
        let found = kernel.opened().first().map(|event| event.attr.ordered);
        assert_eq!((found, writers.is_some()), (holder_opened, holder_opened.is_some()), "{errno:?}");
        let refused: Vec<_> = refused
            .iter()
            .map(|Refused { event, refusal }| (&*refusal.event, &*refusal.target, *event))
            .collect();
        assert_eq!(refused, if holder_opened.is_some() { vec![] } else { vec![("dummy", "cpu 3", None)] });
    }
}

#[test]
fn a_process_of_another_user_is_refused_as_such_if_user_space_is_permitted() {
    for (exclude_kernel, reason) in [(true, "another user"), (false, "perf_event_paranoid is 2")] {
        let (kernel, mut budget) = (FakeKernel::new(), Budget::new(1024, 0, None));
        kernel.refuse(Errno::EACCES, |_, _, _| true);
        let mut attr = holder();
        attr.modifiers.exclude_kernel = exclude_kernel;
        let threads = [OpenTarget::Threads(vec![7])];
        let (_, refused) = open_for(&kernel, &mut budget, &threads, vec![attr], "f");
        let [Refused { event: None, refusal }] = &refused[..] else { panic!("{refused:?}") };
        assert!(refusal.reason.contains(reason), "{}", refusal.reason);
    }
}

#[test]
fn a_cpu_that_is_offline_by_now_is_left_out() {
    let kernel = FakeKernel::new();
    kernel.take_offline(3);
    let (none, refused) = opened(&kernel, &cpus());
    assert!(none.is_none() && refused.is_empty(), "{refused:?}");
}

#[test]
fn a_filter_is_refused_as_such_only_if_the_event_opens_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let named = Named { filter: Some("bytes > ".into()), ..faults() };
    for (only_filtered, blamed) in [(true, true), (false, false)] {
        let kernel = FakeKernel::new();
        kernel.refuse(Errno::EINVAL, move |attr, _, _| {
            attr.selector.config[0] != DUMMY && (attr.filter.is_some() || !only_filtered)
        });
        let mut context = Context {
            kernel: &kernel,
            facts: &Facts::default(),
            roots: &Roots::under(dir.path()),
            budget: &mut Budget::new(1024, 0, None),
            board: &mut Board::default(),
        };
        let events = vec![(Attr::sampling(&named, sampling()), &named, 'f')];
        assert!(events[0].0.filter.is_some());
        let request = Request { holders: vec![holder()], events };
        let opened = RingSet::new("samples").open(RingId::of_cpu(3), &cpus(), request, 8, &mut context);
        let (None, [Refused { event: Some('f'), refusal }]) = (opened.0, &opened.1[..]) else {
            panic!("{:?}", opened.1)
        };
        assert_eq!(refusal.reason.contains("filter \"bytes > \""), blamed, "{}", refusal.reason);
        assert_eq!(refusal.reason.contains("filter"), blamed, "{}", refusal.reason);
        assert_eq!(refusal.errno, Some(Errno::EINVAL));
        assert!(kernel.opened().is_empty(), "the event of the ring is closed as well");
    }
}

#[test]
fn events_write_from_the_start_to_the_stop_and_those_of_a_command_are_left_to_its_execve() {
    let command = [OpenTarget::Command(9)];
    for (open_targets, starts) in [(&cpus(), true), (&command, false)] {
        let kernel = FakeKernel::new();
        let (writers, made) = opened(&kernel, open_targets).0.unwrap();
        let enabled = || kernel.opened().iter().map(|event| event.enabled).collect::<Vec<_>>();
        let mut set = RingSet::new("samples");
        let ring = RingId::of_cpu(3);
        drop(set.add(ring, writers, made));
        assert_eq!(enabled(), [false; 2]);
        set.start(ring);
        assert_eq!(enabled(), [starts; 2]);
        kernel.update(|event| event.enabled = true);
        let writers = set.remove(ring).unwrap();
        writers.stop();
        assert_eq!(enabled(), [false; 2]);
    }
}

#[test]
fn hits_are_the_sum_of_the_chosen_events_that_can_be_read() {
    let (kernel, mut budget) = (FakeKernel::new(), Budget::new(1024, 0, None));
    let opened = open_for(&kernel, &mut budget, &cpus(), vec![holder()], "aab");
    let (writers, _ring) = opened.0.unwrap();
    let mut values = [100, 3, 4, 10].into_iter();
    kernel.update(|event| event.count.value = values.next().unwrap());
    let hits = |of: &str| writers.hits(|chosen| of.contains(*chosen));
    assert_eq!([hits("a"), hits("b"), hits("ab"), hits("")], [7, 10, 17, 0]);
    kernel.set_unplaced(true);
    assert_eq!(hits("ab"), 0);
}

/// Returns a set with the ring of CPU 3, of 8 pages.
fn set(kernel: &FakeKernel) -> RingSet<RingWriters<FakeEvent, char>> {
    let (writers, made) = opened(kernel, &cpus()).0.unwrap();
    let mut set = RingSet::new("samples");
    drop(set.add(RingId::of_cpu(3), writers, made));
    set
}

#[test]
fn a_set_is_idle_without_rings_and_without_a_reader() {
    let kernel = FakeKernel::new();
    let mut set = set(&kernel);
    let ring = RingId::of_cpu(3);
    assert_eq!((set.is_idle(), set.ids(), set.descriptors()), (false, vec![ring], 2));
    assert_eq!(set.writers().map(|(ring, _)| ring).collect::<Vec<_>>(), [ring]);
    assert_eq!(set.writers_mut().map(|(ring, _)| ring).collect::<Vec<_>>(), [ring]);
    let reader = |_: &[RingId]| {};
    set.listen(ring, || Reader::start("reader", None, Urgency::Raised, reader));
    assert!(set.waker().is_some());
    assert!(set.remove(RingId { cpu: 3, number: 1 }).is_none());
    assert!(set.remove(ring).is_some() && set.remove(ring).is_none());
    assert!(kernel.opened().is_empty());
    assert_eq!((set.is_idle(), set.ids(), set.descriptors()), (false, vec![], 0), "there is a reader");
    set.stop_reader();
    assert!(set.is_idle() && set.waker().is_none());
}

#[test]
fn a_set_has_one_reader_which_reads_small_rings_often() {
    let mut set = set(&FakeKernel::new());
    let ring = RingId::of_cpu(3);
    set.listen(ring, || Err(std::io::ErrorKind::OutOfMemory.into()));
    assert!(set.waker().is_none(), "only collections read");
    let (told, heard) = channel();
    set.listen(ring, || {
        Reader::start("reader", None, Urgency::Raised, move |ready| drop(told.send(ready.to_vec())))
    });
    for _ in 0..2 {
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(vec![]));
    }
    set.listen(ring, || panic!("there is a reader"));
}

#[test]
fn a_ring_that_wakes_its_reader_up_in_time_is_not_read_often() {
    let (writers, _) = opened(&FakeKernel::new(), &cpus()).0.unwrap();
    let (mut set, ring) = (RingSet::new("samples"), RingId::of_cpu(3));
    let made = set.make(&writers, 2 * WAKE_UP / rustix::param::page_size()).unwrap();
    let _memory = set.add(ring, writers, made);
    let (told, heard) = channel();
    set.listen(ring, || {
        Reader::start("reader", None, Urgency::Raised, move |ready| drop(told.send(ready.to_vec())))
    });
    assert!(set.waker().is_some());
    assert_eq!(heard.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout));
}

#[test]
fn a_set_has_refusals_until_they_are_forgiven() {
    let (mut set, mut board) = (set(&FakeKernel::new()), Board::default());
    assert!(!set.has_refusals());
    let refusal = no_descriptors(7).refusal(&"samples".into(), "cpu 1", None);
    set.refuse(RingId::of_cpu(1), board.add(&"default".into(), Scope::CPU, refusal));
    assert!(set.has_refusals());
    set.remove_refusals(&"1".parse().unwrap(), &mut board);
    assert!(set.has_refusals(), "CPU 1 is online");
    set.remove_refusals(&"0".parse().unwrap(), &mut board);
    assert!(!set.has_refusals());
}
